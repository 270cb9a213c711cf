"""The Alerts page: what fires, what to do about it, what is silenced, and who gives no answer."""

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

from tests.alert_endpoint import alert, known, rule, rules, serve, silence

PAGE = "pages/alerts.py"
FIRING = alert("HotExpertFillsRank", severity="ticket", service="fleet-7", layer="40", expert="347")
SILENCED = alert("RankSilent", service="fleet-7")
RULES = rules(
    {
        "name": "moescope",
        "rules": [
            rule("HotExpertFillsRank", FIRING),
            rule("RankSilent", SILENCED),
            rule("MemoryPoolFull", alert("MemoryPoolFull", "pending", service="fleet-7")),
            rule("Broken", health="err", lastError="no such table"),
        ],
    }
)
AN_HOUR_AGO = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
EVENT = {"at": AN_HOUR_AGO, "labels": SILENCED["labels"], "from": "pending", "to": "firing"}
ALL = {"/api/v1/rules": RULES, "/api/v1/history": {"data": {"events": [EVENT]}}}
QUIET = {
    "/api/v1/rules": rules({"name": "g", "rules": [rule("A")]}),
    "/api/v1/history": {"data": {"events": []}},
}


@pytest.fixture
def open_alerts(open_page, monkeypatch, tmp_path):
    """Open the page with a source of rules and an Alertmanager; the store is away, and nobody needs it."""
    with ExitStack() as stack:

        def run(answers=None, *, alertmanager=True, sources="", **params):
            if answers is not None:
                sources = stack.enter_context(serve(answers))
            monkeypatch.setenv("MOESCOPE_ALERT_SOURCES", sources)
            if alertmanager:
                told = {
                    "/api/v2/alerts": [known(SILENCED["labels"], silenced_by=["7"])],
                    "/api/v2/silences": [silence("7", ("alertname", "RankSilent", False, True))],
                }
                monkeypatch.setenv("MOESCOPE_ALERTMANAGER_URL", stack.enter_context(serve(told)))
            return open_page(PAGE, f"chdb://{tmp_path}/absent", **params)

        yield run


def test_what_fires_is_named_first(open_alerts):
    page = open_alerts(ALL)
    assert not page.exception
    assert "1 alert fires" in page.subheader[0].value
    cards = [one.value for one in page.markdown if "&ensp;**" in one.value]
    assert "HotExpertFillsRank of fleet-7" in cards[0]
    assert "MemoryPoolFull of fleet-7" in cards[1]


def test_card_has_labels_value_evidence_and_a_way_to_silence(open_alerts, texts):
    said = texts(open_alerts(ALL))
    assert ":orange-badge[ticket]" in said
    assert ":gray-badge[layer 40]" in said
    assert ":blue-badge[value 7]" in said
    assert "/#/silences/new?filter=%7Balertname%3D%22HotExpertFillsRank%22" in said
    assert "Evidence on Experts" in said


def test_silenced_alert_stands_apart_with_its_reason(open_alerts, texts):
    page = open_alerts(ALL)
    assert "Silenced or inhibited (1)" in [one.label for one in page.expander]
    assert "Silenced by ana" in texts(page)


def test_runbook_of_an_alert_names_its_deployment(open_alerts, texts):
    said = texts(open_alerts(ALL))
    assert "**Meaning.**" in said
    assert "service = 'fleet-7'" in said


def test_link_of_a_pager_opens_its_section(open_alerts, texts):
    page = open_alerts(ALL, runbook="RankSilent")
    assert "RankSilent" in page.subheader[0].value
    assert "**What to do.**" in page.markdown[0].value


def test_link_to_no_section_says_which_one_may_be_meant(open_alerts):
    page = open_alerts(ALL, runbook="RankSilnet")
    assert "no section `RankSilnet`" in page.warning[0].value
    assert "[RankSilent](alerts?runbook=RankSilent)" in page.warning[0].value


def test_rule_that_cannot_be_evaluated_is_an_error(open_alerts):
    assert "`Broken` cannot be evaluated: no such table" in open_alerts(ALL).error[0].value


def test_history_is_a_row_for_each_alert(open_alerts, figure_of):
    figure = figure_of(open_alerts(ALL), "alert_history")
    assert {one["name"] for one in figure["data"]} == {"firing, page", "pending"}
    assert figure["data"][0]["y"] == ["<b>RankSilent</b><br>fleet-7"]
    assert all(one["hovertemplate"] for one in figure["data"])


def test_nothing_that_fires_is_said_in_words(open_alerts, texts):
    page = open_alerts(QUIET, alertmanager=False)
    assert "Nothing fires" in page.subheader[0].value
    assert "Nothing was pending or fired within 24h." in texts(page)


def test_nobody_who_evaluates_rules_is_told_how_to_begin(open_alerts, texts):
    page = open_alerts(sources="http://127.0.0.1:1", alertmanager=False)
    assert "Nobody watches" in page.subheader[0].value
    assert "Connection refused" in page.warning[0].value
    assert "moescope alerts run" in texts(page)


def test_no_source_in_the_settings_is_told_the_same(open_alerts, texts):
    page = open_alerts(alertmanager=False)
    assert not page.exception
    assert "MOESCOPE_ALERT_SOURCES" in texts(page)
