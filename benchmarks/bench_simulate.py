"""A simulated K3 fleet, from nothing to every view: what a backfill takes, and whether it is exact.

Runs ``moescope serve`` and ``moescope simulate`` as processes of their own, then compares every view with the
truth (see reconcile.py) and counts the OTLP points that a rank sends per window. The full run is six hours of
64 ranks with a slow rank and a hot expert; ``--quick`` is ten minutes of 8 ranks.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from machine import print_result
from reconcile import reconcile

from moescope.schemas.attributes import Phase
from moescope.schemas.topology import MODEL_SHAPES

SHAPE = MODEL_SHAPES["kimi-k3"]
IS_QUICK = "--quick" in sys.argv
RANKS, BACKFILL = (8, "10m") if IS_QUICK else (64, "6h")
SCENARIOS = "slow-rank,hot-expert"
MOST_POINTS = 250
PORTS = ("otlp-grpc", "otlp-http", "sql", "metrics")


def free_ports() -> dict[str, int]:
    sockets = [socket.socket() for _ in PORTS]
    for sock in sockets:
        sock.bind(("127.0.0.1", 0))
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return dict(zip(PORTS, ports, strict=True))


@contextmanager
def running_server(ports: dict[str, int], data: Path) -> Iterator[subprocess.Popen]:
    options = [f"--{name}-port={port}" for name, port in ports.items()]
    process = subprocess.Popen(
        [sys.executable, "-m", "moescope", "serve", "--data-dir", str(data), *options],
        # What the run began with must still be there when it is compared.
        env={**os.environ, "MOESCOPE_RAW_TTL_HOURS": "48"},
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{ports['metrics']}/readyz", timeout=5).close()
                break
            except OSError:
                if process.poll() is not None:
                    sys.exit("the server ended before it was ready")
                time.sleep(0.2)
        yield process
    finally:
        process.terminate()
        process.wait(60)


def peak_megabytes(process: subprocess.Popen) -> int:
    """Most memory that a running process has had (Linux)."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    [kilobytes] = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(kilobytes) // 1024


def simulate(ports: dict[str, int], truth: Path) -> tuple[float, int]:
    """Seconds of the backfill, and megabytes of its process."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "moescope", "simulate", "--model", SHAPE.name, "--ranks", str(RANKS)),
            *("--scenario", SCENARIOS, "--backfill", BACKFILL, "--duration", "0s", "--seed", "7"),
            *("--endpoint", f"http://127.0.0.1:{ports['otlp-grpc']}", "--truth", str(truth)),
        ]
    )
    memory = 0
    while process.poll() is None:
        with suppress(OSError, ValueError):
            memory = max(memory, peak_megabytes(process))
        time.sleep(0.2)
    if process.returncode:
        sys.exit("the simulation failed")
    return time.perf_counter() - started, memory


def points_per_window(ports: dict[str, int]) -> list[int]:
    """OTLP points by rank and window, most first, without each rank's first window and its last words."""
    parts = " UNION ALL ".join(
        f"SELECT ResourceAttributes['service.instance.id'] AS rank, TimeUnix AS at FROM otel_metrics_{kind} "
        "WHERE ResourceAttributes['moe.component'] = 'rank'"
        for kind in ("gauge", "sum", "histogram")
    )
    query = (
        f"SELECT n FROM (SELECT rank, at, count() AS n, min(at) OVER (PARTITION BY rank) AS first "
        f"FROM ({parts}) GROUP BY rank, at) WHERE at > first ORDER BY n DESC"
    )
    url = f"http://127.0.0.1:{ports['sql']}/?default_format=JSONCompactStrings"
    with urllib.request.urlopen(url, data=query.encode(), timeout=300) as answer:
        return [int(row[0]) for row in json.load(answer)["data"]]


def main() -> None:
    ports = free_ports()
    with tempfile.TemporaryDirectory(prefix="moescope-bench-") as folder:
        truth_file = Path(folder) / "truth.json"
        with running_server(ports, Path(folder) / "data") as server:
            seconds, fleet_megabytes = simulate(ports, truth_file)
            truth = json.loads(truth_file.read_text(encoding="utf-8"))
            started = time.perf_counter()
            wrong = reconcile(truth, f"http://127.0.0.1:{ports['sql']}/moescope")
            compare_seconds = time.perf_counter() - started
            points = points_per_window(ports)
            server_megabytes = peak_megabytes(server)
    counts = truth["windows"] * RANKS * SHAPE.num_moe_layers * SHAPE.num_experts * len(Phase)
    print(f"{BACKFILL} of {RANKS} ranks, {truth['windows']} windows, {counts / 1e6:,.0f} million counts")
    print(f"backfill {seconds:.0f} s, {counts / seconds / 1e6:.2f} million counts/s")
    print(f"memory: fleet {fleet_megabytes:,} MB, server {server_megabytes:,} MB")
    print(f"OTLP points by rank and window: {points[0]} at most, {points[len(points) // 2]} in the middle")
    print("every view agrees with the truth" if not wrong else f"{len(wrong)} views differ")
    print_result(
        "simulate",
        points[0],
        "OTLP points of a rank and window at most",
        at_most=MOST_POINTS - 1,
        views_that_differ=len(wrong),
        backfill_seconds=round(seconds, 1),
        counts_per_second=round(counts / seconds),
        compare_seconds=round(compare_seconds, 1),
        fleet_megabytes=fleet_megabytes,
        server_megabytes=server_megabytes,
    )
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
