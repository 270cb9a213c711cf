"""The rules of deploy/prometheus say what is there, and each is tested both ways."""

import re
from itertools import chain
from pathlib import Path

import pytest
import yaml

from moescope.dashboard.links import PAGES
from moescope.schemas.settings import Settings
from tests.deploy.prometheus_rules import (
    ALERTS,
    NAMES,
    RECORDED,
    RULE_FILES,
    TARGET_LABELS,
    TEST_FILES,
    Alert,
    listed_labels,
    page_labels,
    rules_of,
    selectors,
)

# The first page opens without a name in the address.
ADDRESSES = {Path(page.file).stem for page in PAGES[1:]} | {""}
BASE = "{{ with $externalLabels.moescope_dashboard }}{{ . }}{{ else }}http://localhost:8501{{ end }}/"
PARAMETERS = {"service", "group", "phase", "layer", "expert", "rank"}

# Windows and factors of the SRE workbook, "Alerting on SLOs", table of recommended parameters.
BURN_RATES = {"page": [("1h", "5m", 14.4), ("6h", "30m", 6)], "ticket": [("1d", "2h", 3), ("3d", "6h", 1)]}
BURNING = ("TimeToFirstTokenTooLong", "TimePerOutputTokenTooLong", "RequestsMissContract")


def each(alerts=ALERTS):
    return pytest.mark.parametrize("alert", alerts, ids=lambda alert: f"{alert.name}-{alert.severity}")


@each()
def test_alert_says_who_is_told_and_what_to_do(alert: Alert):
    texts = alert.rule["annotations"]

    assert re.fullmatch(r"(?:[A-Z][a-z]+){2,}", alert.name), "a symptom in CamelCase, without numbers"
    assert alert.severity in {"page", "ticket"}
    assert set(texts) == {"summary", "description", "runbook_url", "dashboard_url"}
    assert texts["runbook_url"] == f"{BASE}alerts?runbook={alert.name}"
    assert alert.rule["keep_firing_for"], "an alert that flaps is worse than one that ends late"


@each()
def test_link_goes_to_a_page_with_parameters_that_the_alert_has(alert: Alert):
    link = alert.rule["annotations"]["dashboard_url"]
    assert link.startswith(BASE)
    page, _, query = link.removeprefix(BASE).partition("?")
    assert page in ADDRESSES
    assert {part.partition("=")[0] for part in query.split("&") if part} <= PARAMETERS
    for label in re.findall(r"\$labels\.(\w+)", query):
        assert label in listed_labels(alert.rule["expr"]) | labels_of_recorded(alert), (
            f"{alert.name} has no {label}"
        )


def labels_of_recorded(alert: Alert) -> set[str]:
    """A recorded name begins with the labels that its series have."""
    levels = [name.partition(":")[0] for name, _ in selectors(alert.rule["expr"]) if name in RECORDED]
    return {
        label
        for level in levels
        for label in ("service", "ep_group", "phase", "stage", "le")
        if label in level
    }


@each()
def test_every_series_and_label_of_an_alert_is_on_our_pages(alert: Alert):
    for expression in alert.expressions:
        assert_known(expression)


@pytest.mark.parametrize("name", RECORDED)
def test_every_series_and_label_of_a_recording_is_on_our_pages(name: str):
    assert_known(RECORDED[name])


def assert_known(expression: str) -> None:
    named = selectors(expression)
    assert named, expression
    for name, labels in named:
        if name in RECORDED:
            known = {"service", "ep_group", "phase", "stage", "le"}
        else:
            assert name in page_labels(), f"no page has {name}"
            known = page_labels()[name]
        assert labels <= known | TARGET_LABELS, f"{name} has no label {sorted(labels - known)}"
    offered = set(chain.from_iterable(page_labels().get(name, {"phase", "stage", "le"}) for name, _ in named))
    assert listed_labels(expression) <= offered | TARGET_LABELS | {"service", "ep_group"}


def test_nobody_records_what_nobody_reads():
    everything = "".join(path.read_text() for path in RULE_FILES)

    assert [name for name in RECORDED if everything.count(name) < 2] == []


@each([alert for alert in ALERTS if alert.name in BURNING])
def test_budget_burns_at_the_windows_and_speeds_of_the_workbook(alert: Alert):
    budget = Settings().contract_missed_share
    for long, short, speed in BURN_RATES[alert.severity]:
        late = round(speed * budget, 4)
        number = late if alert.name == "RequestsMissContract" else round(1 - late, 4)
        part = next(part for part in alert.rule["expr"].split("\nor\n") if f"rate{long}" in part)
        assert f"rate{short}" in part
        compared = re.findall(r"quantile\(([\d.]+)|missed:ratio_rate\w+ > ([\d.]+)", part)
        assert {float(first or second) for first, second in compared} == {number}


def test_floors_of_the_burn_rates_count_requests_of_their_windows():
    seconds = {"m": 60, "h": 3600, "d": 86_400}
    floors = re.findall(
        r"finished:rate(\d+)([mhd]) \* (\d+) > (\d+)", "".join(a.rule["expr"] for a in ALERTS)
    )

    assert len(floors) == len(BURNING) * 2 * 2 * 2
    for length, unit, factor, _ in floors:
        assert int(length) * seconds[unit] == int(factor)


@pytest.mark.parametrize("name", NAMES)
def test_alert_is_tested_both_ways(name: str):
    asked = [
        item
        for path in TEST_FILES
        for test in yaml.safe_load(path.read_text())["tests"]
        for item in test.get("alert_rule_test", [])
        if item["alertname"] == name
    ]
    severities = {alert.severity for alert in ALERTS if alert.name == name}

    fires = {one["exp_labels"]["severity"] for item in asked for one in item.get("exp_alerts", [])}
    assert fires == severities, "a test for each severity, with its texts"
    assert any(not item.get("exp_alerts") for item in asked), "and one of a time when it must be silent"


@pytest.mark.parametrize("path", TEST_FILES, ids=lambda path: path.stem)
def test_each_case_says_why(path):
    lines = path.read_text().splitlines()

    for number, line in enumerate(lines):
        if line.startswith("  - interval:"):
            assert lines[number - 1].startswith("  # "), f"{path.name}:{number + 1}"


def test_rules_of_a_name_differ_in_severity_alone():
    for path in RULE_FILES:
        seen = [(rule["alert"], rule["labels"]["severity"]) for rule in rules_of(path) if "alert" in rule]
        assert len(seen) == len(set(seen))
