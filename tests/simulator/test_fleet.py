import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from moescope.exporters.otlp_config import load_otlp_config
from moescope.schemas.attributes import Phase
from moescope.schemas.errors import UsageError
from moescope.schemas.settings import load_settings
from moescope.schemas.topology import MODEL_SHAPES
from moescope.simulator.fleet import Fleet
from moescope.simulator.plan import make_plan

MIXTRAL = MODEL_SHAPES["mixtral"]


def plan(**changes):
    arguments = {
        "model": "mixtral",
        "ranks": 2,
        "tensor_parallel": 1,
        "scenarios": [],
        "seed": 7,
        "service": None,
    }
    return make_plan(**{**arguments, **changes})


def make_fleet(endpoint, **changes) -> Fleet:
    config = load_otlp_config({}, endpoint=endpoint.url)
    return Fleet(plan(**changes), config, load_settings({}))


def received(endpoint) -> dict[str, np.ndarray]:
    """Sums by phase, each distinct request once, as the store keeps them."""
    sums = {phase.value: np.zeros((32, 8), dtype=np.int64) for phase in Phase}
    for body in set(endpoint.bodies):
        for resource_metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for metric in resource_metrics.scope_metrics[0].metrics:
                if metric.name == "moe.expert.tokens":
                    for point in metric.histogram.data_points:
                        at = {a.key: a.value for a in point.attributes}
                        row = sums[at["moe.phase"].string_value][at["moe.layer"].int_value]
                        row += np.asarray(point.bucket_counts, dtype=np.int64)
    return sums


def truth_of(fleet: Fleet, tmp_path: Path) -> dict:
    fleet.write_truth(tmp_path / "truth.json")
    return json.loads((tmp_path / "truth.json").read_text())


def test_backfill_emits_the_past_in_contiguous_windows(grpc_endpoint, tmp_path: Path):
    fleet = make_fleet(grpc_endpoint)

    delivered = list(fleet.backfill(180, 60))

    assert delivered == [True] * 3
    assert fleet.close(5)
    truth = truth_of(fleet, tmp_path)
    assert truth["layers"] == list(range(32))
    for phase, sums in received(grpc_endpoint).items():
        assert sums.tolist() == truth["phases"][phase]
    prefilled = sum(truth["groups"]["0"]["tokens"]["prefill"]["none"])
    assert prefilled > 3 * 60 * 2 * 500
    assert sum(map(sum, truth["phases"]["prefill"])) == prefilled * 32 * 2


def test_only_the_first_rank_of_a_tensor_parallel_group_counts(grpc_endpoint, tmp_path: Path):
    fleet = make_fleet(grpc_endpoint, ranks=4, tensor_parallel=2)

    list(fleet.backfill(60, 60))
    fleet.close(5)

    tokens = truth_of(fleet, tmp_path)["groups"]["0"]["tokens"]["decode"]["none"]
    assert [count > 0 for count in tokens] == [True, False, True, False]
    assert sum(int(sums.sum()) for sums in received(grpc_endpoint).values()) == fleet.truth.total()


def test_same_run_twice_gives_the_same_truth(grpc_endpoint, tmp_path: Path):
    def run(seed: int) -> dict:
        fleet = make_fleet(
            grpc_endpoint,
            ranks=4,
            seed=seed,
            scenarios=["hot-expert,dead-rank@1m-2m,slow-rank,cache-miss-storm@2m"],
        )
        list(fleet.backfill(180, 60))
        fleet.close(5)
        truth = truth_of(fleet, tmp_path)
        assert truth.pop("clock_ns")
        return truth

    assert run(13) == run(13)
    assert run(13) != run(23)


def test_faster_run_ends_now(grpc_endpoint):
    fleet = make_fleet(grpc_endpoint, ranks=1)

    assert list(fleet.run(6, 10, threading.Event(), speed=100)) == [True] * 6

    ends = [
        point.time_unix_nano
        for body in grpc_endpoint.bodies
        for resource_metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics
        for metric in resource_metrics.scope_metrics[0].metrics
        if metric.name == "moe.tokens"
        for point in metric.sum.data_points
    ]
    fleet.close(5)
    assert max(ends) - min(ends) == 50 * 10**9
    assert abs(time.time_ns() - max(ends)) < 10 * 10**9


def test_endpoint_that_is_away_for_a_while_gets_everything(grpc_endpoint, tmp_path: Path):
    import grpc

    fleet = make_fleet(grpc_endpoint)
    grpc_endpoint.script = [grpc.StatusCode.UNAVAILABLE] * 5

    list(fleet.backfill(180, 60))

    assert fleet.close(30)
    truth = truth_of(fleet, tmp_path)
    for phase, sums in received(grpc_endpoint).items():
        assert sums.tolist() == truth["phases"][phase]


def test_live_run_goes_on_where_the_backfill_ended(grpc_endpoint):
    fleet = make_fleet(grpc_endpoint, ranks=1)
    list(fleet.backfill(60, 60))
    stop = threading.Event()
    list(fleet.catch_up(10, stop))
    assert list(fleet.run(1, 0.1, stop)) == [True]
    fleet.close(5)

    points = [
        point
        for body in grpc_endpoint.bodies
        for resource_metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics
        for metric in resource_metrics.scope_metrics[0].metrics
        if metric.name == "moe.tokens"
        for point in metric.sum.data_points[:1]
    ]
    spans = sorted({(p.start_time_unix_nano, p.time_unix_nano) for p in points})
    assert all(before[1] == after[0] for before, after in itertools.pairwise(spans))
    assert time.time_ns() - spans[-1][1] < 20 * 10**9, "the last window is of now"


def test_command_that_is_ended_early_writes_the_truth_of_what_it_emitted(grpc_endpoint, tmp_path: Path):
    truth_file = tmp_path / "truth.json"
    process = subprocess.Popen(
        [
            *(
                sys.executable,
                "-m",
                "moescope",
                "simulate",
                "--model",
                "mixtral",
                "--ranks",
                "2",
                "--seed",
                "13",
            ),
            *("--interval", "0.2s", "--endpoint", grpc_endpoint.url, "--truth", str(truth_file)),
        ],
        env={**os.environ, "NO_COLOR": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "live" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)

    assert process.returncode == 0, errors
    truth = json.loads(truth_file.read_text())
    assert sum(map(sum, truth["phases"]["decode"])) > 0
    for phase, sums in received(grpc_endpoint).items():
        assert sums.tolist() == truth["phases"][phase]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "kimi-k4"}, "unknown model 'kimi-k4'; did you mean 'kimi-k3'"),
        ({"scenarios": ["hot-expert,cold-fusion"]}, "unknown scenario 'cold-fusion'"),
        ({"ranks": 9}, "9 ranks for 8 experts"),
        ({"ranks": 3, "tensor_parallel": 2}, "3 ranks do not divide"),
        ({"seed": -1}, "not negative"),
        ({"scenarios": ["slow-rnk"]}, "did you mean 'slow-rank'"),
        ({"scenarios": ["slow-rank@soon"]}, "'soon' is no time; write 90s, 10m or 2h"),
        ({"scenarios": ["slow-rank@20m-10m"]}, "ends before it starts"),
        ({"scenarios": ["slow-rank@"]}, "has no time"),
        ({"scenarios": ["dead-rank"], "ranks": 1}, "needs a rank that stays alive"),
        ({"roles": "split"}, "unknown roles 'split'"),
        ({"roles": "disaggregated"}, "add --ep-groups 2"),
        ({"model": "kimi-k3", "ranks": 64, "ep_groups": 3}, "up to 128 ranks"),
    ],
)
def test_wrong_use_names_the_thing_and_the_way_out(changes: dict, words: str):
    with pytest.raises(UsageError, match=words):
        plan(**changes)
