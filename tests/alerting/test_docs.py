"""What docs/alerts.md and the runbook say holds."""

import re
from pathlib import Path

from moescope.alerting.check import check_rules
from moescope.alerting.rule_file import find_rule_files, read_rule_files
from moescope.alerting.scratch_store import ScratchStore
from moescope.alerting.unit_test import run_test
from moescope.alerting.unit_test_file import read_test_file
from moescope.schemas.settings import Settings

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
RUNBOOK = (ROOT / "deploy" / "runbook.md").read_text(encoding="utf-8")


def test_the_rule_and_the_test_of_the_guide_work_together(scratch: ScratchStore, tmp_path: Path):
    rules, tests = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "failovers.yaml").write_text(rules)
    (tmp_path / "failovers_test.yaml").write_text(tests)

    assert check_rules([tmp_path / "failovers.yaml"], Settings(), scratch.store.label).findings == ()
    file = read_test_file(tmp_path / "failovers_test.yaml")
    assert [run_test(scratch, file, test).faults for test in file.tests] == [()]


def test_every_shipped_rule_is_in_the_guide_and_has_its_runbook_severity_and_links():
    for group in read_rule_files(find_rule_files("")):
        for rule in group.rules:
            assert f"| `{rule.name}` | {rule.labels['severity'].source} |" in GUIDE
            assert f"\n## {rule.name}\n" in RUNBOOK
            assert rule.labels["severity"].source in {"page", "ticket"}
            runbook = rule.annotations["runbook_url"].source
            assert runbook == f"{{{{ $dashboard }}}}/alerts?runbook={rule.name}"
            assert rule.annotations["dashboard_url"].source.startswith("{{ $dashboard }}/")
            assert {"summary", "description"} <= {*rule.annotations}
