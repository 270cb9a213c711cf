"""From a silent rank to the pager and back: a real server, fleet, Prometheus, Alertmanager and amtool."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from moescope.simulator.plan import make_plan
from tests.deploy.alert_stack import Alertmanager, Prometheus, wait_for
from tests.deploy.sql_alerts import SqlAlerts
from tests.program import run_moescope
from tests.server_process import ServerProcess

RANKS = 8

# For hangs only: five programs share the machine with whatever else runs on it.
pytestmark = [pytest.mark.tools, pytest.mark.timeout(900)]


class Pager:
    """What Alertmanager's webhook posts, by the receiver that it was meant for."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict]] = []
        told = self.told

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                told.append((self.path.strip("/"), body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def statuses(self, receiver: str, name: str) -> list[str]:
        """Of each message about an alert, in order."""
        return [
            body["status"]
            for where, body in self.told
            if where == receiver and body["commonLabels"]["alertname"] == name
        ]

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def pager() -> Iterator[Pager]:
    made = Pager()
    yield made
    made.stop()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    monkeypatch.setenv("MOESCOPE_FLEET_PAGE_INTERVAL_SECONDS", "1")
    monkeypatch.setenv("MOESCOPE_SILENT_AFTER_SECONDS", "15")
    made = ServerProcess(tmp_path / "data").start()
    yield made
    made.stop()


@pytest.fixture
def alertmanager(tmp_path: Path, pager: Pager) -> Iterator[Alertmanager]:
    made = Alertmanager(tmp_path / "alertmanager", pager.url)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def prometheus(tmp_path: Path, server: ServerProcess, alertmanager: Alertmanager) -> Iterator[Prometheus]:
    made = Prometheus(tmp_path / "prometheus", server.metrics_port, alertmanager.port)
    made.start()
    yield made
    made.stop()


class SimulatedFleet:
    """`moescope simulate` beside the test, which decides when a scenario ends."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._process: subprocess.Popen | None = None

    def run(self, *arguments: str) -> None:
        """Go on as another run of the same deployment; its ranks take the place of those before."""
        self.stop()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "moescope", "simulate", "--model", "mixtral", "--seed", "13"),
                *("--ranks", str(RANKS), "--interval", "1s", "--endpoint", self._server.endpoint, *arguments),
            ],
            env={**os.environ, "MOESCOPE_FLUSH_TIMEOUT_SECONDS": "60"},
            stderr=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(120)


@pytest.fixture
def fleet(server: ServerProcess) -> Iterator[SimulatedFleet]:
    made = SimulatedFleet(server)
    yield made
    made.stop()


def test_silent_rank_reaches_the_pager_once_over_every_restart_and_is_resolved(
    server, fleet, prometheus, alertmanager, pager
):
    fleet.run("--scenario", "silent-rank@5s")
    [told] = wait_for("the alert is at Alertmanager", lambda: alertmanager.alerts("RankSilent"))

    assert told["labels"] == {
        "alertname": "RankSilent",
        "severity": "page",
        "service": "mixtral",
        "ep_group": "0",
    }
    assert told["annotations"]["runbook_url"] == "http://localhost:8501/alerts?runbook=RankSilent"
    assert told["annotations"]["dashboard_url"] == "http://localhost:8501/health?service=mixtral&group=0"
    assert told["annotations"]["summary"] == "1 rank of mixtral is silent"
    assert "RankSilent" in alertmanager.amtool("alert", "query", 'service="mixtral"')

    prometheus.stop()
    prometheus.start()
    server.stop()
    server.start()
    wait_for("the page is scraped again", lambda: prometheus.query("up == 1"))
    [again] = wait_for("the alert goes on", lambda: alertmanager.alerts("RankSilent"))

    assert again["startsAt"] == told["startsAt"], "the same alert, not another one"
    assert pager.statuses("page", "RankSilent") == ["firing"]
    fleet.run()
    wait_for("it is resolved", lambda: "resolved" in pager.statuses("page", "RankSilent"))
    assert pager.statuses("page", "RankSilent") == ["firing", "resolved"], "told once, and its end once"
    assert not [one for one in prometheus.alerts("RankSilent") if one["state"] == "firing"]


@pytest.fixture
def sql_alerts(tmp_path: Path, server: ServerProcess, alertmanager: Alertmanager) -> Iterator[SqlAlerts]:
    made = SqlAlerts(tmp_path / "sql-alerts", server.dsn, alertmanager.url)
    yield made
    made.stop()


def test_hot_expert_reaches_alertmanager_once_over_a_restart_and_is_resolved(
    server, sql_alerts, alertmanager, tmp_path
):
    truth = tmp_path / "truth.json"
    plan = make_plan(
        model="mixtral", ranks=2, tensor_parallel=1, scenarios=["hot-expert"], seed=13, service=""
    )
    [hot] = plan.hot_experts
    fleet = ("--model", "mixtral", "--ranks", "2", "--seed", "13", "--endpoint", server.endpoint)
    past = ("--backfill", "24m", "--duration", "0s", "--scenario", "hot-expert@8m-16m", "--truth", str(truth))
    done = run_moescope("simulate", *fleet, *past, timeout=800)
    assert done.returncode == 0, done.stderr
    begun_ns, _ = json.loads(truth.read_text())["clock_ns"]

    def ago(minute: float) -> float:
        """When that minute of the run was; how far evaluation looks back moves the test's clock."""
        return time.time() - begun_ns / 1e9 - 60 * minute

    def planted() -> list[dict]:
        told = alertmanager.alerts("HotExpertHarmful")
        where = (str(hot.layer), str(hot.expert))
        return [one for one in told if (one["labels"]["layer"], one["labels"]["expert"]) == where]

    sql_alerts.start(ago(14))
    [told, *_] = wait_for("the alert is at Alertmanager", planted)
    assert told["labels"]["severity"] == "ticket"
    assert told["annotations"]["runbook_url"].endswith("/alerts?runbook=HotExpertHarmful")
    assert f"layer={hot.layer}&expert={hot.expert}" in told["annotations"]["dashboard_url"]
    assert "HotExpertHarmful" in alertmanager.amtool("alert", "query", "severity=ticket")

    sql_alerts.stop()
    sql_alerts.start(ago(14.5))
    assert told["startsAt"] in {one["startsAt"] for one in planted()}

    sql_alerts.stop()
    sql_alerts.start(ago(23))
    wait_for("it is resolved", lambda: not planted())
