"""`moescope serve` as a process of its own, and SQL to it with nothing but the standard library."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

READY_SECONDS = 180
"""For hangs only: a busy machine takes its time to start."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


class ServerProcess:
    """A server on its own ports that can be stopped, killed and started again on the same data."""

    def __init__(self, data_dir: Path, python: str = sys.executable) -> None:
        self.data_dir = data_dir
        self.python = python
        self.grpc_port, self.http_port, self.sql_port, self.metrics_port = free_ports(4)
        self.endpoint = f"http://127.0.0.1:{self.grpc_port}"
        self.dsn = f"http://127.0.0.1:{self.sql_port}/moescope"
        self.process: subprocess.Popen | None = None

    def start(self) -> "ServerProcess":
        self.process = subprocess.Popen(
            [
                *(self.python, "-m", "moescope", "serve", "--data-dir", str(self.data_dir)),
                *("--otlp-grpc-port", str(self.grpc_port), "--otlp-http-port", str(self.http_port)),
                *("--sql-port", str(self.sql_port), "--metrics-port", str(self.metrics_port)),
            ],
            env={**os.environ, "MOESCOPE_ENGINE_MEMORY_BYTES": str(2 * 2**30)},
        )
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"the server ended with {self.process.returncode}"
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{self.metrics_port}/readyz", timeout=5
                ) as answer:
                    if answer.status == 200:
                        return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise AssertionError(f"the server was not ready within {READY_SECONDS} s")

    def kill(self) -> None:
        """End it as a power cut would: no handler runs."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)

    def sql(self, query: str) -> list[list]:
        """Rows of a query."""
        url = f"http://127.0.0.1:{self.sql_port}/?default_format=JSONCompactStrings"
        with urllib.request.urlopen(url, data=query.encode(), timeout=60) as answer:
            return json.load(answer)["data"]

    def expert_sums(self, service: str) -> dict[str, dict[int, dict[int, int]]]:
        """Activations by phase, layer and expert, those with any."""
        rows = self.sql(
            "SELECT phase, layer, expert, sum(activations) FROM expert_activations_per_minute "
            f"WHERE service = '{service}' GROUP BY ALL HAVING sum(activations) > 0"
        )
        sums: dict[str, dict[int, dict[int, int]]] = {}
        for phase, layer, expert, count in rows:
            sums.setdefault(phase, {}).setdefault(int(layer), {})[int(expert)] = int(count)
        return sums


def sums_of_truth(truth: dict) -> dict[str, dict[int, dict[int, int]]]:
    """The simulator's truth in the shape of :meth:`ServerProcess.expert_sums`."""
    return {
        phase: {
            layer: {expert: count for expert, count in enumerate(row) if count}
            for layer, row in zip(truth["layers"], rows, strict=True)
        }
        for phase, rows in truth["phases"].items()
    }


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A running server with an empty store."""
    made = ServerProcess(tmp_path / "data").start()
    yield made
    made.stop()
