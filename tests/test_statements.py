"""Every SQL statement that people are shown runs on a migrated store: docs, runbook, examples, rules.

Grafana's boards have a test of their own (``tests/deploy/test_grafana.py``), which fills in their choices.
"""

import dataclasses
import re
import subprocess
import time
from pathlib import Path

import pytest

from moescope.alerting.datasource import observe
from moescope.alerting.rule_file import find_rule_files, read_rule_files
from moescope.analysis.sql_answer import SqlAnswer
from moescope.analysis.sql_chart import choose_chart
from moescope.analysis.sql_console import RunningQuery
from moescope.analysis.sql_views import list_examples, read_views
from moescope.analysis.store import open_store
from moescope.schemas.settings import Settings
from tests.analysis.known_telemetry import make_telemetry_store
from tests.analysis.known_workloads import KnownFleet, this_minute_s

ROOT = Path(__file__).parent.parent
PATIENCE_SECONDS = 60
FLEET = KnownFleet(service="kimi-k3", num_ranks=3, num_layers=3, num_experts=23, minutes=3)
SHOWN = re.compile(r"(README|CHANGELOG|CONTRIBUTING)\.md|docs/|deploy/|examples/")
TRACKED = subprocess.run(
    ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.split()
PAGES = [path for path in TRACKED if SHOWN.match(path) and path.endswith(".md")]

_FENCED = re.compile(r"^ *```sql\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_CURL = re.compile(r"--data-binary '((?:SELECT|WITH|SHOW)[^']*)'")
_INLINE = re.compile(r"`((?:SELECT|WITH|SHOW)\b[^`]*)`")
_HAS_SQL = re.compile(r"\bSELECT\b[\s\S]{1,2000}?\bFROM\b")
# Who else runs them: the boards' own test, and the rules of the alerts below.
ELSEWHERE = re.compile(r"deploy/grafana/|deploy/kubernetes/moescope/files/dashboards")


def _is_of_nobody(path: str) -> bool:
    is_shown = SHOWN.match(path) and path not in PAGES and not ELSEWHERE.match(path)
    return bool(is_shown) and (ROOT / path).is_file()


def statements_of(path: str) -> list[str]:
    """What a page shows; an ellipsis after SELECT stands for whatever somebody asks for."""
    text = (ROOT / path).read_text(encoding="utf-8")
    found = [part for block in _FENCED.findall(text) for part in block.split(";\n") if part.strip()]
    found += [*_CURL.findall(text), *_INLINE.findall(_FENCED.sub("", text))]
    return [" ".join(one.split("\n")).replace("SELECT …", "SELECT *") for one in found]


DOCUMENTED = [(path, statement) for path in PAGES for statement in statements_of(path)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    fleet = dataclasses.replace(FLEET, end_s=this_minute_s())
    opened = open_store(make_telemetry_store(tmp_path_factory.mktemp("store") / "engine", fleet))
    yield opened
    opened.close()


@pytest.fixture
def run(store):
    return lambda sql: RunningQuery(sql, Settings(dsn=store.label)).wait(PATIENCE_SECONDS)


@pytest.mark.parametrize(("path", "statement"), DOCUMENTED)
def test_statement_of_a_page_runs(run, path, statement):
    answer = run(statement)

    assert isinstance(answer, SqlAnswer), f"{path}: {answer}"


def test_pages_show_statements():
    """The patterns above still find what they are meant to find."""
    where = {path for path, _ in DOCUMENTED}

    assert {"README.md", "docs/signals.md", "deploy/runbook.md"} <= where


@pytest.mark.parametrize(
    "path",
    [path for path in TRACKED if _is_of_nobody(path)],
)
def test_no_statement_stands_where_nobody_runs_it(path):
    assert not _HAS_SQL.search((ROOT / path).read_text(encoding="utf-8", errors="replace"))


@pytest.mark.parametrize("example", list_examples(), ids=lambda example: example.view)
def test_example_of_a_view_brings_rows_of_that_view(run, example):
    answer = run(example.sql)

    assert isinstance(answer, SqlAnswer), answer
    assert answer.row_count > 0
    assert f"FROM {example.view}" in example.sql
    assert example.question.endswith((".", "?"))
    assert choose_chart(answer) is not None or answer.row_count == 1


def test_every_view_has_columns_with_words_and_an_example(store):
    views = read_views(store)

    assert [view.name for view in views] == [example.view for example in list_examples()]
    for view in views:
        assert view.question.endswith(("?", ".")), view.name
        assert all(column.comment for column in view.columns), view.name
        assert view.columns, view.name


@pytest.mark.parametrize(
    "rule",
    [rule for group in read_rule_files(find_rule_files("")) for rule in group.rules],
    ids=lambda rule: rule.name,
)
def test_rule_of_an_alert_runs(store, rule):
    observe(store, rule, Settings(), time.time(), 1_000)
