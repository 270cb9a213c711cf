"""A real Prometheus scrapes a real server that a simulated fleet reports to."""

import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server_process import ServerProcess, free_ports

RANKS, LAYERS, TOP_K = 4, 32, 2
CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: moescope
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


class Prometheus:
    """Debian's Prometheus on a free port, with one target."""

    def __init__(self, folder: Path, target_port: int) -> None:
        binary = shutil.which("prometheus")
        assert binary, "prometheus is in the Debian package of the same name"
        config = folder / "prometheus.yml"
        config.write_text(CONFIG.format(port=target_port))
        [port] = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [
                *(binary, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"),
                *(f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"),
            ]
        )

    def query(self, expression: str) -> dict[tuple, float]:
        """Value by label values, the name and the target left out."""
        url = f"{self.url}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = json.load(answer)["data"]["result"]
        hidden = {"__name__", "instance", "job"}
        return {
            tuple(value for name, value in sorted(one["metric"].items()) if name not in hidden): float(
                one["value"][1]
            )
            for one in found
        }

    def eventually(self, expression: str) -> dict[tuple, float]:
        """Ask until there is an answer."""
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            assert self.process.poll() is None, "Prometheus ended"
            try:
                if found := self.query(expression):
                    return found
            except (urllib.error.URLError, OSError):
                pass
            time.sleep(0.2)
        raise AssertionError(f"Prometheus has nothing for {expression}")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    monkeypatch.setenv("MOESCOPE_FLEET_PAGE_INTERVAL_SECONDS", "1")
    made = ServerProcess(tmp_path / "data").start()
    yield made
    made.stop()


@pytest.fixture
def prometheus(server: ServerProcess, tmp_path: Path) -> Iterator[Prometheus]:
    made = Prometheus(tmp_path, server.metrics_port)
    yield made
    made.stop()


def simulate(server: ServerProcess, truth: Path, duration: str = "3s") -> dict:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "moescope", "simulate", "--model", "mixtral", "--seed", "13"),
            *("--ranks", str(RANKS), "--duration", duration, "--interval", "1s"),
            *("--endpoint", server.endpoint, "--truth", str(truth)),
        ],
        timeout=120,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(truth.read_text())


def tokens_of(truth: dict) -> dict[tuple, float]:
    return {(phase,): sum(map(sum, rows)) / LAYERS / TOP_K for phase, rows in truth["phases"].items()}


@pytest.mark.tools
def test_prometheus_knows_every_token_and_the_balance_of_every_layer(server, prometheus, tmp_path):
    assert prometheus.eventually("up == 1")
    truth = simulate(server, tmp_path / "truth.json")
    expected = tokens_of(truth)
    balance = prometheus.eventually("moe_layer_imbalance_ratio")
    prometheus.eventually(f'sum(moe_tokens_total{{excluded="none"}}) == {sum(expected.values())}')

    assert prometheus.query('sum by (phase) (moe_tokens_total{excluded="none"})') == expected
    assert len(balance) == 2 * LAYERS
    assert all(1 <= ratio <= RANKS for ratio in balance.values())
    shares = prometheus.query("sum by (phase) (moe_rank_load_share_ratio)")
    assert shares == pytest.approx({("prefill",): 1, ("decode",): 1})
    assert max(prometheus.query("moe_telemetry_window_age_seconds").values()) < 120
    assert set(prometheus.query("moe_findings").values()) <= set(map(float, range(LAYERS * 8)))


@pytest.mark.tools
def test_restarted_server_is_a_counter_reset_and_no_negative_rate(server, prometheus, tmp_path):
    assert prometheus.eventually("up == 1")
    # The second run is the shorter one: a counter that has caught up between two scrapes shows no reset.
    first = tokens_of(simulate(server, tmp_path / "first.json", "6s"))
    assert prometheus.eventually(f'sum(moe_tokens_total{{excluded="none"}}) == {sum(first.values())}')
    server.stop()
    server.start()
    simulate(server, tmp_path / "second.json", "1s")
    assert prometheus.eventually("resets(moe_tokens_total[5m]) > 0")

    assert min(prometheus.query("rate(moe_tokens_total[5m])").values()) >= 0
