"""Every setting and command that deploy/ and its page name exists; yamllint finds nothing in its YAML."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from moescope.schemas.settings import setting_rows
from tests.deploy.commands import problem_with
from tests.deploy.grafana_boards import DEPLOY

ROOT = DEPLOY.parent
PAGE = ROOT / "docs" / "deploy.md"
FILES = [
    path
    for path in sorted(DEPLOY.rglob("*"))
    if path.is_file()
    and path.suffix in {".yaml", ".yml", ".xml", ".env", ".conf", ".service", ".tpl", ".txt", ".md"}
] + [DEPLOY / "Dockerfile", DEPLOY / "compose" / "env.example", PAGE]
YAML = [
    path
    for path in FILES
    if path.suffix in {".yaml", ".yml"} and not {"templates", "tests"} & set(path.parts)
]
LINT = """
extends: default
ignore: ["**/templates/**"]
rules:
  line-length: disable  # an expression of a rule and a sentence of an alert are a line each
  document-start: disable
  braces: {max-spaces-inside: 1}
  comments: {min-spaces-from-content: 1}
  comments-indentation: disable
  indentation: disable
"""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_settings_that_are_named_exist(path: Path):
    named = set(re.findall(r"\bMOESCOPE_[A-Z][A-Z_]+[A-Z]\b", path.read_text(encoding="utf-8")))
    assert named <= {row.env for row in setting_rows()}


def test_commands_that_are_named_exist():
    found = []
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        quoted = re.findall(r"`moescope ([a-z][^`]*)`", text)
        typed = re.findall(r"^(?:\$ )?(?:\S*/)?moescope ([a-z][^\n#]*)$", text, re.MULTILINE)
        found += [(path.name, line.split()) for line in quoted + typed]
    assert len(found) > 10
    assert [(name, words, problem) for name, words in found if (problem := problem_with(words))] == []


def test_containers_run_commands_that_exist():
    services = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]
    ours = {
        name: one for name, one in services.items() if "moescope" in one["image"] and "entrypoint" not in one
    }
    assert set(ours) == {"migrate", "moescope", "dashboard", "alerts"}
    for name, service in ours.items():
        assert problem_with(service["command"]) == "", name


@pytest.mark.tools
def test_yamllint_finds_nothing(tmp_path):
    config = tmp_path / "yamllint.yaml"
    config.write_text(LINT)
    done = subprocess.run(
        ["yamllint", "--strict", "-c", str(config), *map(str, YAML)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_page_says_of_every_setting_who_reads_it_and_says_it_once():
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index("## Which setting goes where") :]
    names = re.findall(r"`([A-Z][A-Z_]+[A-Z])`", table.partition("| | a setting for all")[0])
    ours = sorted(f"MOESCOPE_{name}" for name in names if not name.startswith("OTEL_"))
    rows = [row.env for row in setting_rows()]
    # The thresholds are declared last; of them the page names the first, and one that tables hold too.
    first = rows.index("MOESCOPE_IMBALANCE_RATIO")
    expected = sorted([*rows[: first + 1], "MOESCOPE_SILENT_AFTER_SECONDS"])
    assert ours == expected, "name a new setting under who reads it"


def test_files_that_the_page_links_to_exist():
    links = re.findall(r"\]\(([^)#]+)\)", PAGE.read_text(encoding="utf-8"))
    assert links
    for link in links:
        assert (PAGE.parent / link).exists(), link
