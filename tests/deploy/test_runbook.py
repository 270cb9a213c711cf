"""Who is woken finds what to do: a heading for each alert, and everything that it names exists."""

import re

import pytest
import yaml

from moescope.alerting.scratch_store import scratch_store
from tests.deploy.commands import problem_with
from tests.deploy.prometheus_rules import ALERTS, DEPLOY, NAMES, page_labels

TEXT = (DEPLOY / "runbook.md").read_text()
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
SQL_RULES = sorted((DEPLOY.parent / "moescope/alerting/rules").glob("*.yaml"))
SQL_NAMES = {
    rule["alert"]
    for path in SQL_RULES
    if not path.stem.endswith("_test")
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
}
PARTS = ("**Meaning.**", "**Evidence.**", "**What to do.**")
COMMAND = re.compile(r"`moescope ([a-z][^`]*)`")
STATEMENT = re.compile(r"^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)
DESCRIPTIONS = " ".join(alert.rule["annotations"]["description"] for alert in ALERTS)
SERIES = re.compile(r"`((?:moe|moescope|gen_ai)_[a-z0-9_]+)`")


def test_each_alert_has_its_heading_and_each_heading_its_alert():
    assert set(SECTIONS) == {*NAMES, *SQL_NAMES}


@pytest.mark.parametrize("name", SECTIONS)
def test_section_says_what_it_means_where_it_shows_and_what_to_do(name: str):
    places = [SECTIONS[name].find(part) for part in PARTS]

    assert -1 not in places
    assert places == sorted(places)


def test_commands_of_the_runbook_and_of_the_alerts_exist_with_their_options():
    found = COMMAND.findall(" ".join(f"{TEXT} {DESCRIPTIONS}".split()))

    assert {line: problem for line in found if (problem := problem_with(line.split()))} == {}


def test_statements_of_the_runbook_run_on_a_migrated_store():
    statements = STATEMENT.findall(TEXT)
    assert len(statements) > 10

    with scratch_store() as scratch:
        for statement in statements:
            scratch.store.ask(statement, {})


@pytest.mark.parametrize("name", sorted(set(SERIES.findall(TEXT))))
def test_series_of_the_runbook_is_on_a_page(name: str):
    assert name in page_labels()


def test_alerts_that_a_section_points_at_exist():
    words = set(re.findall(r"\b(?:[A-Z][a-z]+){2,}\b", TEXT))
    # Products and the alerts' own words.
    assert words - {*NAMES, *SQL_NAMES} <= {"ClickHouse", "NVLink", "PerOutputToken"}
