"""Alerts of a real Prometheus, silenced in a real Alertmanager."""

import json
import subprocess
import time
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest

from moescope.analysis.alert_history import read_history
from moescope.analysis.alert_records import AlertState
from moescope.analysis.alert_sources import read_alerts
from moescope.analysis.alert_words import quiet_words
from moescope.schemas.settings import Settings
from tests.server_process import free_ports

pytestmark = pytest.mark.tools
PATIENCE_SECONDS = 60
RULES = """
groups:
  - name: moescope
    interval: 1s
    rules:
      - alert: HotExpertFillsRank
        expr: label_replace(vector(0.79), "service", "kimi-k3", "", "") unless moe_findings
        labels: {severity: ticket}
        annotations:
          summary: "{{ $labels.service }} is hot"
          runbook_url: "http://localhost:8501/alerts?runbook=HotExpertFillsRank"
          dashboard_url: "http://localhost:8501/expert_load?service={{ $labels.service | urlquery }}"
      - alert: KvCacheRunningOut
        expr: label_replace(vector(7), "service", "kimi-k3", "", "") unless moe_findings
        for: 1h
      - alert: NotOurs
        expr: vector(1)
"""


@pytest.fixture
def settings(tmp_path):
    """A Prometheus and an Alertmanager that run."""
    prometheus, alertmanager = free_ports(2)
    (tmp_path / "moescope.rules.yaml").write_text(RULES)
    (tmp_path / "alertmanager.yml").write_text("{route: {receiver: nobody}, receivers: [{name: nobody}]}")
    (tmp_path / "prometheus.yml").write_text(
        "global: {evaluation_interval: 1s, external_labels: {site: x}}\n"
        "rule_files: [moescope.rules.yaml]\n"
        f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['127.0.0.1:{alertmanager}']}}]}}]}}\n"
    )
    commands = [
        [
            *(
                "prometheus",
                f"--config.file={tmp_path}/prometheus.yml",
                f"--storage.tsdb.path={tmp_path}/tsdb",
            ),
            f"--web.listen-address=127.0.0.1:{prometheus}",
        ],
        [
            *("prometheus-alertmanager", f"--config.file={tmp_path}/alertmanager.yml"),
            *(f"--storage.path={tmp_path}/silences", f"--web.listen-address=127.0.0.1:{alertmanager}"),
            "--cluster.listen-address=",
        ],
    ]
    with (tmp_path / "log").open("w") as log:
        processes = [subprocess.Popen(command, stdout=log, stderr=log) for command in commands]
        try:
            yield Settings(
                alert_sources=f"http://127.0.0.1:{prometheus}",
                alertmanager_url=f"http://127.0.0.1:{alertmanager}",
            )
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(30)


def until(settings, holds):
    """Read alerts until something holds of them."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds(alerts := read_alerts(settings)):
        assert time.monotonic() < deadline, alerts
        time.sleep(0.2)
    return alerts


def silence(address, **labels):
    """Silence what has these labels."""
    now = datetime.now(UTC)
    body = {
        "matchers": [{"name": name, "value": value, "isRegex": False} for name, value in labels.items()],
        "startsAt": now.isoformat(),
        "endsAt": (now + timedelta(hours=1)).isoformat(),
        "createdBy": "ana",
        "comment": "firmware",
    }
    request = urllib.request.Request(
        f"{address}/api/v2/silences",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def test_alert_of_a_real_prometheus_is_shown_silenced_and_remembered(settings):
    alerts = until(settings, lambda one: len(one.told) == 2)
    firing, pending = alerts.told
    assert (firing.name, firing.state) == ("HotExpertFillsRank", AlertState.FIRING)
    assert (firing.summary, firing.labels) == ("kimi-k3 is hot", {"service": "kimi-k3"})
    assert (firing.evidence.page, firing.evidence.params) == ("expert_load", {"service": "kimi-k3"})
    assert (pending.name, pending.state) == ("KvCacheRunningOut", AlertState.PENDING)
    assert [source.problem for source in alerts.sources] == ["", ""]

    silence(settings.alertmanager_url, alertname="HotExpertFillsRank")
    alerts = until(settings, lambda one: one.untold)
    assert [one.name for one in alerts.told] == ["KvCacheRunningOut"]
    assert quiet_words(alerts.untold[0]).startswith("Silenced by ana until ")

    names = frozenset(rule.name for rule in alerts.rules)
    assert names == {"HotExpertFillsRank", "KvCacheRunningOut"}
    deadline = time.monotonic() + PATIENCE_SECONDS
    spans = ()
    while {span.name for span in spans} != names:
        assert time.monotonic() < deadline, spans
        spans = read_history(settings, seconds=3600, names=names)
    assert {span.state for span in spans} >= {AlertState.FIRING, AlertState.PENDING}
    assert all(span.is_open for span in spans if span.name == "KvCacheRunningOut")
