"""The HTTP API of `moescope alerts run`, over a real store and over none."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from moescope.alerting.run import AlertsServer
from moescope.alerting.schedule import following_slot, missed_slots, slot_of
from moescope.alerting.scratch_store import ScratchStore
from moescope.schemas.errors import AlertRuleError, SettingError
from moescope.schemas.settings import Settings
from tests.server_process import free_ports

EXPR = "SELECT 'k3' AS service, 347 AS expert, 0.75 AS value WHERE {at:DateTime64(3)} > 0"


@pytest.fixture
def settings(tmp_path: Path, rule_file: Callable[..., Path], scratch: ScratchStore) -> Settings:
    path = rule_file(
        expr=EXPR,
        labels={"severity": "page"},
        annotations={"summary": "expert {{ $labels.expert }} has {{ $value | humanizePercentage }}"},
    )
    return Settings(
        dsn=scratch.store.label,
        alert_rules=str(path),
        alert_interval_seconds=1,
        alerts_port=0,
        alert_state_file=str(tmp_path / "state.sqlite"),
    )


def get(server: AlertsServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def data(server: AlertsServer, path: str) -> dict:
    status, text = get(server, path)
    answer = json.loads(text)
    assert (status, answer["status"]) == (200, "success")
    return answer["data"]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_rules_alerts_and_history_are_told_as_prometheus_tells_them(settings: Settings):
    with AlertsServer(settings) as server:
        wait_for(lambda: get(server, "/readyz") == (200, "ready\n"))
        (group,) = data(server, "/api/v1/rules")["groups"]
        (alert,) = data(server, "/api/v1/alerts")["alerts"]
        (event,) = data(server, "/api/v1/history")["events"]
        metrics = get(server, "/metrics")[1]

    (rule,) = group["rules"]
    assert (group["name"], group["interval"], group["file"]) == ("hot", 1, settings.alert_rules)
    assert {
        key: rule[key] for key in ("name", "type", "query", "state", "health", "lastError", "duration")
    } == {
        "name": "ExpertHot",
        "type": "alerting",
        "query": EXPR,
        "state": "firing",
        "health": "ok",
        "lastError": "",
        "duration": 0,
    }
    assert rule["alerts"] == [alert]
    labels = {"alertname": "ExpertHot", "expert": "347", "service": "k3", "severity": "page"}
    assert (alert["labels"], alert["state"], alert["value"]) == (labels, "firing", "0.75")
    assert alert["annotations"] == {"summary": "expert 347 has 75%"}
    assert (event["from"], event["to"], event["labels"], event["at"]) == (
        "inactive",
        "firing",
        labels,
        alert["activeAt"],
    )
    assert 'moescope_alerts_alerts{group="hot",rule="ExpertHot",state="firing"} 1.0' in metrics
    assert 'moescope_alerts_evaluation_failures_total{group="hot",rule="ExpertHot"} 0.0' in metrics


def test_a_store_that_is_away_is_a_state_of_the_rule_and_not_the_end(settings: Settings):
    (port,) = free_ports(1)
    object.__setattr__(settings, "dsn", f"http://127.0.0.1:{port}/moescope")
    with AlertsServer(settings) as server:
        wait_for(lambda: "no rule could be evaluated: nobody answers" in get(server, "/readyz")[1])
        (group,) = data(server, "/api/v1/rules")["groups"]
        metrics = get(server, "/metrics")[1]
        assert get(server, "/healthz") == (200, "alive\n")

    assert group["rules"][0]["health"] == "err"
    assert "nobody answers" in group["rules"][0]["lastError"]
    assert 'moescope_alerts_rule_failing{group="hot",rule="ExpertHot"} 1.0' in metrics


def test_history_takes_a_span_and_refuses_what_is_no_time(settings: Settings):
    with AlertsServer(settings) as server:
        wait_for(lambda: bool(data(server, "/api/v1/history")["events"]))

        assert data(server, "/api/v1/history?start=0&end=2020-01-01T00:00:00Z")["events"] == []
        assert len(data(server, f"/api/v1/history?start=0&end={time.time() + 9}")["events"]) == 1
        status, text = get(server, "/api/v1/history?start=yesterday")
    assert (status, json.loads(text)["errorType"]) == (400, "bad_data")


def test_the_token_is_asked_for_except_by_probes(settings: Settings, tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    object.__setattr__(settings, "token_file", str(token))
    with AlertsServer(settings) as server:
        assert get(server, "/api/v1/alerts")[0] == 401
        assert get(server, "/metrics")[0] == 401
        assert get(server, "/healthz")[0] == 200


@pytest.mark.parametrize(
    ("setting", "error", "told"),
    [
        (("alert_rules", "/nowhere/rules.yaml"), AlertRuleError, "no rule file at /nowhere/rules.yaml"),
        (("alertmanager_url", "alertmanager:9093"), SettingError, "MOESCOPE_ALERTMANAGER_URL"),
        (("alert_webhook_url", "ftp://hook/"), SettingError, "MOESCOPE_ALERT_WEBHOOK_URL"),
        (("host", "0.0.0.0"), SettingError, "a token is needed"),
    ],
)
def test_wrong_settings_are_told_before_anything_starts(
    settings: Settings, tmp_path: Path, setting: tuple[str, str], error: type[Exception], told: str
):
    object.__setattr__(settings, *setting)

    with pytest.raises(error, match=told), AlertsServer(settings):
        pass
    assert not (tmp_path / "state.sqlite").exists()


def test_evaluations_are_due_at_whole_multiples_of_the_interval():
    assert (slot_of(1013.0, 30), following_slot(990, 1013.0, 30)) == (990, 1020)


def test_evaluations_that_were_due_while_one_ran_are_counted_and_left_out():
    assert missed_slots(990, 1019.0, 30) == 0
    assert (missed_slots(990, 1085.0, 30), following_slot(990, 1085.0, 30)) == (3, 1110)


def test_a_clock_that_is_set_back_a_little_brings_no_evaluation_twice_and_far_is_believed():
    assert following_slot(1020, 1015.0, 30) == 1050
    assert following_slot(1020, 200.0, 30) == 210
