"""What fired: stretches of time from events, and from the points of a Prometheus."""

from datetime import UTC, datetime, timedelta

from moescope.analysis.alert_history import read_history, spans_from_events, spans_from_samples
from moescope.analysis.alert_records import AlertSeverity, AlertState
from moescope.schemas.settings import Settings
from tests.alert_endpoint import serve

START = datetime(2026, 11, 29, 12, tzinfo=UTC)
END = START + timedelta(hours=1)
LABELS = {"alertname": "A", "severity": "page", "service": "kimi-k3"}


def at(minutes):
    return START + timedelta(minutes=minutes)


def event(minutes, before, after, **labels):
    return {
        "at": at(minutes).isoformat().replace("+00:00", "Z"),
        "labels": LABELS | labels,
        "from": before,
        "to": after,
    }


def told(spans):
    return [
        (one.state.value, (one.start - START).seconds // 60, (one.end - START).seconds // 60) for one in spans
    ]


def test_states_last_until_the_next_one():
    spans = list(
        spans_from_events(
            [
                event(7, "inactive", "pending"),
                event(13, "pending", "firing"),
                event(23, "firing", "inactive"),
            ],
            START,
            END,
        )
    )
    assert told(spans) == [("pending", 7, 13), ("firing", 13, 23)]
    assert spans[0].severity is AlertSeverity.PAGE
    assert spans[0].labels == {"service": "kimi-k3"}
    assert not spans[1].is_open


def test_what_fired_before_has_fired_from_the_beginning_on():
    assert told(spans_from_events([event(13, "firing", "no_data")], START, END)) == [
        ("firing", 0, 13),
        ("no_data", 13, 60),
    ]


def test_alerts_of_one_rule_are_apart():
    spans = spans_from_events(
        [event(7, "inactive", "firing", layer="40"), event(13, "inactive", "firing", layer="7")], START, END
    )
    assert [(one.labels["layer"], one.is_open) for one in spans] == [("40", True), ("7", True)]


def samples(state, *minutes):
    metric = {"__name__": "ALERTS", "alertstate": state, **LABELS}
    return {"metric": metric, "values": [[at(minute).timestamp(), "1"] for minute in minutes]}


def test_points_with_a_gap_are_two_stretches():
    spans = list(spans_from_samples([samples("firing", 7, 8, 9, 23, 24)], 60, END))
    assert told(spans) == [("firing", 7, 10), ("firing", 23, 25)]
    assert spans[0].labels == {"service": "kimi-k3"}


def test_what_has_a_point_at_the_end_goes_on():
    (span,) = spans_from_samples([samples("pending", 58, 59)], 60, END)
    assert span.is_open
    assert span.end == END
    assert span.state is AlertState.PENDING


def test_every_source_is_asked_in_its_own_way():
    """Prometheus knows no history of its own; one that is away is left out."""
    ours = {"/api/v1/history": {"data": {"events": [event(7, "inactive", "firing")]}}}
    other = samples("firing", 13, 14)
    other["metric"]["alertname"] = "NotOurs"
    theirs = {"/api/v1/query_range": {"data": {"result": [samples("firing", 23, 23.25, 23.5), other]}}}
    seen = []
    with serve(ours) as first, serve(theirs, seen=seen) as second:
        settings = Settings(alert_sources=f"{first},{second},http://127.0.0.1:1")
        spans = read_history(settings, seconds=3600, names=frozenset({"A"}), now=END)
    assert [(one.start - START).seconds // 60 for one in spans] == [7, 23]
    assert "query=ALERTS" in seen[1][0]
    assert "step=15" in seen[1][0]
