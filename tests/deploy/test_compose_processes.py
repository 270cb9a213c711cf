"""The processes of the compose file with its own commands and environment, on loopback.

The embedded engine stands for ClickHouse, behind the same interface. The simulator stands for the Collector:
it sends to the server what that would hand on, with the Collector's own header.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from moescope.schemas.settings import Settings
from moescope.server.app import Server
from tests.deploy.grafana_boards import DEPLOY
from tests.program import run_moescope
from tests.server_process import free_ports

pytestmark = pytest.mark.tools

SERVICES = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]
COLLECTOR = yaml.safe_load((DEPLOY / "otel-collector" / "gateway.yaml").read_text())
TOKEN = "a-token-of-a-test"
LAYERS, TOP_K = 32, 2


class Composed:
    """The services of the compose file as processes, in the order of its ``depends_on``."""

    def __init__(self, folder: Path, clickhouse_port: int) -> None:
        self.grpc, self.http, self.metrics, self.alerts, self.dashboard = free_ports(5)
        self._token = folder / "token"
        self._token.write_text(f"{TOKEN}\n")
        self._places = {
            "clickhouse:8123": f"127.0.0.1:{clickhouse_port}",
            "alertmanager:9093": "127.0.0.1:1",
            "alerts:9465": f"127.0.0.1:{self.alerts}",
            "prometheus:9090": "127.0.0.1:1",
            "/run/moescope/token": str(self._token),
            "/var/lib/moescope/alerts.json": str(folder / "alerts.json"),
            "0.0.0.0": "127.0.0.1",
            **{
                f"${{{name}:?Set it in .env; env.example beside it says how}}": "secret"
                for name in ("CLICKHOUSE_WRITER_PASSWORD", "CLICKHOUSE_READER_PASSWORD")
            },
            "${DASHBOARD_URL:-http://localhost:8501}": f"http://localhost:{self.dashboard}",
        }

    def start(self, name: str) -> subprocess.Popen:
        """Run a service's own command with its own environment."""
        service = SERVICES[name]
        ports = {
            "MOESCOPE_OTLP_GRPC_PORT": self.grpc,
            "MOESCOPE_OTLP_HTTP_PORT": self.http,
            "MOESCOPE_METRICS_PORT": self.metrics,
            "MOESCOPE_ALERTS_PORT": self.alerts,
            "MOESCOPE_DASHBOARD_PORT": self.dashboard,
        }
        environ = {key: self._here(value) for key, value in service["environment"].items()}
        return subprocess.Popen(
            [sys.executable, "-m", "moescope", *map(self._here, service["command"])],
            env={**os.environ, **{key: str(value) for key, value in ports.items()}, **environ},
            cwd=DEPLOY.parent,
        )

    def _here(self, text: str) -> str:
        for place, here in self._places.items():
            text = text.replace(place, here)
        assert "$" not in text, text
        return text


def ask(url: str, token: str = "") -> str:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
        return answer.read().decode()


def eventually(condition: Callable[[], object], process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, f"it ended with {process.returncode}"
        with contextlib.suppress(OSError, urllib.error.URLError):
            if condition():
                return
        time.sleep(0.3)
    raise AssertionError("it did not come about within two minutes")


@pytest.fixture
def clickhouse(tmp_path):
    """A store that takes writes over HTTP, as ClickHouse does."""
    ports = {"otlp_grpc_port": 0, "otlp_http_port": 0, "sql_port": 0, "metrics_port": 0}
    settings = Settings(
        **ports, data_dir=str(tmp_path / "clickhouse"), sql_read_only=False, engine_memory_bytes=2 * 2**30
    )
    with Server(settings) as server:
        yield server


@pytest.fixture
def composed(tmp_path, clickhouse):
    made = Composed(tmp_path, clickhouse.ports.sql)
    running: list[subprocess.Popen] = []

    def start(name: str) -> subprocess.Popen:
        running.append(made.start(name))
        return running[-1]

    yield made, start
    for process in running:
        process.terminate()
    for process in running:
        process.wait(60)


def test_processes_of_the_compose_file_work_together(composed, tmp_path):
    places, start = composed
    assert start("migrate").wait(120) == 0
    server = start("moescope")
    eventually(lambda: ask(f"http://127.0.0.1:{places.metrics}/readyz"), server)

    header = COLLECTOR["exporters"]["otlp_grpc"]["headers"]["authorization"]
    truth = tmp_path / "truth.json"
    done = run_moescope(
        *("simulate", "--model", "mixtral", "--ranks", "4", "--duration", "2s", "--interval", "1s"),
        *("--endpoint", f"http://127.0.0.1:{places.grpc}", "--truth", str(truth)),
        OTEL_EXPORTER_OTLP_HEADERS="authorization="
        + header.replace("${env:TELEMETRY_TOKEN}", TOKEN).replace(" ", "%20"),
    )
    assert done.returncode == 0, done.stderr
    counted = sum(sum(map(sum, rows)) for rows in json.loads(truth.read_text())["phases"].values())

    def tokens_on_page() -> float:
        page = ask(f"http://127.0.0.1:{places.metrics}/metrics", TOKEN)
        lines = [
            line
            for line in page.splitlines()
            if line.startswith("moe_tokens_total{") and 'excluded="none"' in line
        ]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    assert tokens_on_page() == counted / LAYERS / TOP_K
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ask(f"http://127.0.0.1:{places.metrics}/metrics")

    alerts, dashboard = start("alerts"), start("dashboard")
    eventually(lambda: ask(f"http://127.0.0.1:{places.alerts}/readyz"), alerts)
    eventually(
        lambda: json.loads(ask(f"http://127.0.0.1:{places.alerts}/api/v1/rules", TOKEN))["data"]["groups"],
        alerts,
    )
    eventually(lambda: ask(f"http://127.0.0.1:{places.dashboard}/_stcore/health") == "ok", dashboard)
