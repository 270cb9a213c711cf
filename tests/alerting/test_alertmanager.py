"""A real Alertmanager: what fires arrives, a killed process changes nothing, what ends is resolved."""

import datetime as dt
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moescope.alerting.scratch_store import ScratchStore
from tests.server_process import free_ports

pytestmark = pytest.mark.tools

CONFIG = """\
route: {{receiver: test, group_wait: 0s, group_interval: 1s, repeat_interval: 1h}}
receivers:
  - name: test
    webhook_configs: [{{url: "http://127.0.0.1:{port}/", send_resolved: true}}]
"""
EXPR = (
    "SELECT 'k3' AS service, '0' AS ep_group, 40 AS layer, 347 AS expert, "
    "0.75 AS value, is_hot AS is_active FROM hot"
)


@pytest.fixture
def told() -> Iterator[tuple[int, list[dict]]]:
    """Whoever Alertmanager notifies: his port, and what he was told."""
    messages: list[dict] = []

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            messages.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], messages
        server.shutdown()


@pytest.fixture
def manager(tmp_path: Path, told: tuple[int, list[dict]]) -> Iterator[str]:
    config = tmp_path / "alertmanager.yml"
    config.write_text(CONFIG.format(port=told[0]))
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [
            *("prometheus-alertmanager", f"--config.file={config}", f"--storage.path={tmp_path / 'manager'}"),
            *(f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="),
        ],
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: answers(f"{url}/-/ready"))
    yield url
    process.terminate()
    process.wait(30)


class Runner:
    """`moescope alerts run` as a process that can be killed and started again."""

    def __init__(self, tmp_path: Path, rules: Path, dsn: str, manager: str) -> None:
        (self.port,) = free_ports(1)
        self._command = [
            *(sys.executable, "-m", "moescope", "alerts", "run", str(rules), "--dsn", dsn),
            *("--alertmanager-url", manager, "--alerts-port", str(self.port)),
            *("--state-file", str(tmp_path / "state.sqlite")),
        ]
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        environ = {**os.environ, "MOESCOPE_ALERT_INTERVAL_SECONDS": "1", "MOESCOPE_ALERT_DELAY_SECONDS": "0"}
        self.process = subprocess.Popen(self._command, env=environ)
        wait_for(lambda: answers(f"http://127.0.0.1:{self.port}/readyz"))

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture
def runner(
    tmp_path: Path, rule_file: Callable[..., Path], scratch: ScratchStore, manager: str
) -> Iterator[Runner]:
    scratch.command("CREATE TABLE hot (is_hot UInt8) ENGINE = Memory")
    scratch.insert("hot", '{"is_hot": 0}')
    rules = rule_file(
        expr=EXPR,
        for_="2s",
        labels={"severity": "page"},
        annotations={"runbook_url": "{{ $dashboard }}/alerts?runbook=ExpertHot"},
    )
    made = Runner(tmp_path, rules, scratch.store.label, manager)
    made.start()
    yield made
    if made.process is not None and made.process.poll() is None:
        made.end(signal.SIGKILL)
    scratch.command("DROP TABLE hot")


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def turn(scratch: ScratchStore, is_hot: int) -> None:
    scratch.command("TRUNCATE TABLE hot")
    scratch.insert("hot", json.dumps({"is_hot": is_hot}))


def test_an_alert_arrives_survives_a_kill_and_is_resolved(
    runner: Runner, scratch: ScratchStore, manager: str, told: tuple[int, list[dict]]
):
    messages = told[1]
    turn(scratch, 1)
    wait_for(lambda: len(messages) == 1)
    (alert,) = messages[0]["alerts"]
    assert (messages[0]["status"], alert["labels"]) == (
        "firing",
        {
            "alertname": "ExpertHot",
            "service": "k3",
            "ep_group": "0",
            "layer": "40",
            "expert": "347",
            "severity": "page",
        },
    )
    assert alert["annotations"] == {"runbook_url": "http://localhost:8501/alerts?runbook=ExpertHot"}

    runner.end(signal.SIGKILL)
    runner.start()
    time.sleep(5)
    with urllib.request.urlopen(f"{manager}/api/v2/alerts", timeout=30) as answer:
        (standing,) = json.load(answer)
    assert len(messages) == 1
    assert dt.datetime.fromisoformat(standing["startsAt"]) == dt.datetime.fromisoformat(alert["startsAt"])

    turn(scratch, 0)
    wait_for(lambda: len(messages) == 2)
    (ended,) = messages[1]["alerts"]
    assert (messages[1]["status"], ended["labels"], ended["startsAt"]) == (
        "resolved",
        alert["labels"],
        alert["startsAt"],
    )
    assert runner.end(signal.SIGTERM) == 0


def test_what_ended_while_nobody_evaluated_is_resolved_afterwards(
    runner: Runner, scratch: ScratchStore, told: tuple[int, list[dict]]
):
    messages = told[1]
    turn(scratch, 1)
    wait_for(lambda: len(messages) == 1)
    assert runner.end(signal.SIGTERM) == 0
    turn(scratch, 0)
    runner.start()

    wait_for(lambda: len(messages) == 2)
    assert [message["status"] for message in messages] == ["firing", "resolved"]
