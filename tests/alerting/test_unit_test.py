"""`alerts test`: known data into a real store, and differences that can be read."""

from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import pytest

from moescope.alerting.rule_file import find_test_files
from moescope.alerting.scratch_store import ScratchStore
from moescope.alerting.series_notation import expand
from moescope.alerting.unit_test import RuleTestReport, RuleTestResult, run_test
from moescope.alerting.unit_test_file import read_test_file
from moescope.schemas.errors import AlertRuleError
from moescope.schemas.report_schema import read_report_schema

RULES = """\
groups:
  - name: failovers
    rules:
      - alert: ManyFailovers
        expr: |
          SELECT service, layer, expert, sum(failovers) AS value FROM expert_failovers
          WHERE time >= {at:DateTime64(3)} - INTERVAL 5 MINUTE AND time < {at:DateTime64(3)}
          GROUP BY service, layer, expert HAVING value > 79
        for: 2m
        labels: {severity: page}
        annotations: {summary: "expert {{ $labels.expert }}: {{ $value }}"}
"""
TESTS = """\
rule_files: [rules.yaml]
evaluation_interval: 1m
tests:
  - name: many failovers fire
    input:
      - table: expert_failovers
        columns: {service: k3, ep_group: "0", layer: 40, expert: 347, reason: timeout}
        values: {failovers: "0x1 50x8"}
    alert_rule_test:
      - eval_time: 3m
        alertname: ManyFailovers
      - eval_time: 8m
        alertname: ManyFailovers
        exp_alerts:
          - exp_labels: {service: k3, layer: "40", expert: "347", severity: page}
            exp_annotations: {summary: "expert 347: 250"}
"""


@pytest.fixture
def results(tmp_path: Path, scratch: ScratchStore) -> Callable[[str], list[RuleTestResult]]:
    (tmp_path / "rules.yaml").write_text(RULES)

    def run(text: str) -> list[RuleTestResult]:
        path = tmp_path / "rules_test.yaml"
        path.write_text(text)
        file = read_test_file(path)
        return [run_test(scratch, file, test) for test in file.tests]

    return run


def shipped() -> Iterator[tuple[Path, str]]:
    for path in find_test_files([]):
        for test in read_test_file(path).tests:
            yield path, test.name


@pytest.mark.parametrize(("path", "name"), [pytest.param(*one, id=one[1]) for one in shipped()])
def test_shipped_rule(scratch: ScratchStore, path: Path, name: str):
    file = read_test_file(path)
    (test,) = [one for one in file.tests if one.name == name]

    assert run_test(scratch, file, test).faults == ()


def test_every_shipped_rule_is_tested_both_ways():
    for path in find_test_files([]):
        file = read_test_file(path)
        expected = [one for test in file.tests for one in test.expectations]
        for name in {rule.name for group in file.groups for rule in group.rules}:
            assert {bool(one.alerts) for one in expected if one.alertname == name} == {True, False}, name


def test_what_is_as_expected_says_nothing(results):
    (result,) = results(TESTS)

    assert (result.faults, result.to_text()) == ((), "ok      many failovers fire")
    jsonschema.validate(RuleTestReport((result,)).to_dict(), read_report_schema("alerts_test"))


def test_a_difference_names_line_time_and_both_sides(results):
    changed = TESTS.replace("expert 347: 250", "expert 347: 251").replace("eval_time: 3m", "eval_time: 6m")

    (result,) = results(changed)

    assert result.faults == (
        (
            "line 10, at 6m: firing alerts of ManyFailovers are not these:\n"
            '+ {expert="347", layer="40", service="k3", severity="page"}   was not expected'
        ),
        (
            "line 12, at 8m: firing alerts of ManyFailovers are not these:\n"
            '- {expert="347", layer="40", service="k3", severity="page"}\n'
            "    summary: expected expert 347: 251\n"
            "             found    expert 347: 250"
        ),
    )


def test_an_alert_that_is_not_there_is_told(results):
    (result,) = results(TESTS.replace('expert: "347"', 'expert: "13"'))

    assert result.faults[0].splitlines()[1:] == [
        '- {expert="13", layer="40", service="k3", severity="page"}   is not there',
        '+ {expert="347", layer="40", service="k3", severity="page"}   was not expected',
    ]


def test_tests_do_not_see_each_others_rows_and_views_come_back(results, scratch: ScratchStore):
    second = TESTS[TESTS.index("  - name") :].replace("347", "13").replace("many", "other")

    assert [result.faults for result in results(TESTS + second)] == [(), ()]
    made = scratch.store.ask("SELECT engine FROM system.tables WHERE name = 'expert_failovers'", {})
    assert made.column("engine").to_pylist() == ["View"]


def test_simulated_windows_come_through_the_real_writer(results):
    text = """\
rule_files: [rules.yaml]
evaluation_interval: 1m
tests:
  - name: a dead rank's experts are served by other copies
    simulate: {model: mixtral, ranks: 4, scenario: dead-rank@2m, backfill: 7m, service: mixtral}
    alert_rule_test:
      - eval_time: 1m
        alertname: ManyFailovers
      - eval_time: 6m
        alertname: ManyFailovers
"""
    (result,) = results(text)
    (fault,) = result.faults

    assert fault.startswith("line 9, at 6m")
    assert '+ {expert="0", layer="13", service="mixtral", severity="page"}   was not expected' in fault


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("alertname: Many", "alertname: Few", "line 10"),
        ("eval_time: 3m", "eval_tim: 3m", "no such key; did you mean eval_time?"),
        ('"0x1 50x8"', '"0x1 50*8"', "values.failovers: '50*8' is none of 7, 5x3"),
        ("rules.yaml", "rule.yaml", "rule.yaml cannot be read"),
        ("[rules.yaml]", "[5]", "rule_files: takes a list of rule files"),
    ],
)
def test_a_mistake_in_the_tests_is_named(results, old: str, new: str, told: str):
    with pytest.raises(AlertRuleError) as error:
        results(TESTS.replace(old, new, 1))

    assert told.replace("line 10", ":10:1: alertname: no rule FewFailovers; there are ManyFailovers") in str(
        error.value
    )


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("table: expert_failovers", "table: expert_failover", "no table or view 'expert_failover'"),
        ("reason: timeout", "raeson: timeout", "expert_failovers has no column raeson; it has time, service"),
    ],
)
def test_rows_that_the_schema_cannot_take_are_named(results, old: str, new: str, told: str):
    with pytest.raises(AlertRuleError, match=told):
        results(TESTS.replace(old, new))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1+2x3", [1, 3, 5, 7]),
        ("5x3", [5, 5, 5, 5]),
        ("9-4x2 _x2 -1.5", [9, 5, 1, None, None, -1.5]),
        ("_ 0.5+0.25x2", [None, 0.5, 0.75, 1.0]),
    ],
)
def test_short_notation(text: str, values: list):
    assert expand(text) == values
