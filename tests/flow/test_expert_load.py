"""One number's whole way, through real processes and sockets: nothing lost, nothing doubled."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.server_process import ServerProcess, sums_of_truth


def simulate(server: ServerProcess, truth: Path, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "moescope", "simulate", "--ranks", "4", "--seed", "13"),
            *("--endpoint", server.endpoint, "--truth", str(truth), *arguments),
        ],
        env={**os.environ, "MOESCOPE_FLUSH_TIMEOUT_SECONDS": "10"},
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen) -> None:
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors


def test_kimi_k3_sums_read_by_sql_are_what_was_emitted(server: ServerProcess, tmp_path: Path):
    process = simulate(
        server, tmp_path / "truth", "--model", "kimi-k3", "--duration", "3s", "--interval", "1s"
    )
    finish(process)

    truth = json.loads((tmp_path / "truth").read_text())
    assert server.expert_sums("kimi-k3") == sums_of_truth(truth)
    states = server.sql("SELECT state, missing_assignments FROM telemetry_health")
    assert states == [["ok", "0"]] * 6, "four ranks, their scheduler and their front end"


def test_all_roll_ups_hold_the_same_sums(server: ServerProcess, tmp_path: Path):
    finish(
        simulate(server, tmp_path / "truth", "--model", "mixtral", "--backfill", "23m", "--duration", "1s")
    )

    truth = json.loads((tmp_path / "truth").read_text())
    total = str(sum(sum(map(sum, rows)) for rows in truth["phases"].values()))
    for tier in ("1m", "10m", "1h"):
        query = f"SELECT sum(n) FROM (SELECT arraySum(sumForEachMerge(tokens)) AS n FROM expert_load_{tier})"
        assert server.sql(query) == [[total]], tier
    assert server.sql("SELECT sum(assignments), sum(arraySum(tokens)) FROM expert_load") == [[total, total]]
    assert server.expert_sums("mixtral") == sums_of_truth(truth)


def test_rank_load_splits_every_assignment_over_the_ranks_that_hold_its_expert(
    server: ServerProcess, tmp_path: Path
):
    finish(simulate(server, tmp_path / "truth", "--model", "mixtral", "--duration", "2s", "--interval", "1s"))

    truth = sums_of_truth(json.loads((tmp_path / "truth").read_text()))
    rows = server.sql("SELECT phase, layer, ep_rank, sum(load) FROM rank_load GROUP BY ALL")
    loads = {(phase, int(layer), int(rank)): float(load) for phase, layer, rank, load in rows}
    expected = {
        (phase, layer, rank): float(sum(n for expert, n in experts.items() if expert // 2 == rank))
        for phase, layers in truth.items()
        for layer, experts in layers.items()
        for rank in range(4)
    }
    assert loads == expected


def test_endpoint_away_for_thirty_seconds_loses_nothing(tmp_path: Path):
    server = ServerProcess(tmp_path / "data")
    process = simulate(
        server, tmp_path / "truth", "--model", "mixtral", "--duration", "34s", "--interval", "2s"
    )
    time.sleep(30)
    server.start()
    try:
        finish(process)
        truth = json.loads((tmp_path / "truth").read_text())
        assert server.expert_sums("mixtral") == sums_of_truth(truth)
        failures = server.sql("SELECT min(export_failures), sum(missing_assignments) FROM telemetry_health")
        assert int(failures[0][0]) > 0
        assert failures[0][1] == "0"
    finally:
        server.stop()


def test_server_killed_in_the_middle_loses_and_doubles_nothing(server: ServerProcess, tmp_path: Path):
    process = simulate(
        server, tmp_path / "truth", "--model", "deepseek-v3", "--duration", "9s", "--interval", "0.5s"
    )
    for _ in range(3):
        time.sleep(2.3)
        server.kill()
        server.start()
    finish(process)

    truth = json.loads((tmp_path / "truth").read_text())
    assert server.expert_sums("deepseek-v3") == sums_of_truth(truth)
    assert server.sql("SELECT sum(missing_assignments) FROM telemetry_health") == [["0"]]


@pytest.mark.parametrize("restarts", [0, 1])
def test_same_request_three_times_is_stored_once(
    server: ServerProcess, grpc_endpoint, tmp_path: Path, restarts: int
):
    """The request is one that the real exporter made, caught on its way."""
    caught = ServerProcess(tmp_path / "unused")
    caught.endpoint = grpc_endpoint.url
    finish(simulate(caught, tmp_path / "truth", "--model", "mixtral", "--duration", "1s", "--interval", "1s"))
    truth = json.loads((tmp_path / "truth").read_text())

    for round_number in range(3):
        for body in grpc_endpoint.bodies:
            request = urllib.request.Request(
                f"http://127.0.0.1:{server.http_port}/v1/metrics",
                data=body,
                headers={"Content-Type": "application/x-protobuf"},
            )
            with urllib.request.urlopen(request, timeout=30) as answer:
                assert answer.status == 200
        if round_number < restarts:
            server.stop()
            server.start()

    assert server.expert_sums("mixtral") == sums_of_truth(truth)
    assert server.sql("SELECT sum(missing_assignments) FROM telemetry_health") == [["0"]]
