"""Numbers of one emitted window that must agree with each other, whatever the load."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from moescope.collector.requests import FinishedRequest
from moescope.exporters.otlp_config import load_otlp_config
from moescope.schemas.metrics import METRICS
from moescope.schemas.settings import load_settings
from moescope.schemas.topology import MODEL_SHAPES
from moescope.simulator.fleet import Fleet
from moescope.simulator.plan import make_plan
from moescope.simulator.serving import SERVING_FACTS


@pytest.fixture
def emit(grpc_endpoint, tmp_path: Path):
    def run(**changes) -> dict:
        arguments = {"ranks": 4, "tensor_parallel": 1, "scenarios": [], "seed": 7, "service": None}
        fleet = Fleet(
            make_plan(**{**arguments, **changes}),
            load_otlp_config({}, endpoint=grpc_endpoint.url),
            load_settings({}),
        )
        assert all(fleet.backfill(120, 60))
        assert fleet.close(10)
        fleet.write_truth(tmp_path / "truth.json")
        return json.loads((tmp_path / "truth.json").read_text())

    return run


@pytest.mark.parametrize("changes", [{}, {"tensor_parallel": 2}, {"redundant_experts": 4}])
def test_assignments_tokens_and_bytes_agree(emit, changes: dict):
    truth = emit(model="mixtral", **changes)
    [group] = truth["groups"].values()
    facts, shape = SERVING_FACTS["mixtral"], MODEL_SHAPES["mixtral"]

    for phase in ("prefill", "decode"):
        traffic = {name: np.array(rows) for name, rows in group["traffic"][phase].items()}
        rows = np.array(group["tokens"][phase]["none"])
        assert (
            traffic["assignments"].sum(axis=1).tolist()
            == (rows * shape.top_k * shape.num_moe_layers).tolist()
        )
        assert (traffic["tokens"] <= traffic["assignments"]).all()
        assert (traffic["tokens"] * shape.top_k >= traffic["assignments"]).all()
        assert (traffic["tokens"] <= rows[:, None] * shape.num_moe_layers).all()
        assert (traffic["sent"] == traffic["received"].T).all(), "mirrored to the byte"
        away = traffic["tokens"] - np.diag(np.diag(traffic["tokens"]))
        assert (traffic["sent"] == away * facts.dispatch_bytes + away.T * facts.combine_bytes).all()


def test_a_token_is_sent_once_to_a_rank_however_many_of_its_experts_live_there(emit):
    traffic = emit(model="gpt-oss", ranks=2)["groups"]["0"]["traffic"]["decode"]

    tokens, assignments = np.array(traffic["tokens"]), np.array(traffic["assignments"])
    assert assignments.sum() > 1.8 * tokens.sum(), "four experts on two ranks: most tokens have two on each"


def test_steps_hold_the_tokens_that_were_counted(emit):
    [group] = emit(model="mixtral", tensor_parallel=2)["groups"].values()

    for phase in ("prefill", "decode"):
        assert group["steps"][phase]["tokens"][::2] == group["tokens"][phase]["none"][::2]
        steps = group["steps"][phase]["steps"]
        assert steps[::2] == steps[1::2], "ranks of an engine step together"
    layers = MODEL_SHAPES["mixtral"].num_moe_layers
    assert group["dispatch"]["decode"]["combine"]["calls"] == [
        steps * layers for steps in group["steps"]["decode"]["steps"]
    ]


def test_requests_agree_with_tokens(emit):
    [group] = emit(model="mixtral")["groups"].values()
    latency, goodput = group["latency"], group["goodput"]

    assert latency["itl"]["observations"] == sum(group["tokens"]["decode"]["none"])
    assert latency["e2e"]["observations"] == latency["queue"]["observations"] == goodput["requests"]
    assert latency["tpot"]["observations"] <= goodput["requests"], "none for one output token"
    assert goodput["good_requests"] <= goodput["requests"]
    assert goodput["good_tokens"] <= goodput["output_tokens"]


def test_memory_stays_within_its_pools(emit):
    [group] = emit(model="deepseek-v3", ranks=8, redundant_experts=8)["groups"].values()

    for pools, gpu in zip(group["memory"], group["gpu"], strict=True):
        assert all(pool["used"] <= pool["limit"] for pool in pools.values())
        assert sum(pool["limit"] for pool in pools.values()) <= gpu["memory_limit_bytes"]
        assert sum(pool["used"] for pool in pools.values()) == gpu["memory_used_bytes"]
        assert pools["replication"]["used"] == 58 * SERVING_FACTS["deepseek-v3"].expert_bytes
        assert "kda_state" not in pools, "DeepSeek-V3 has none: absent, not zero"


def test_disaggregated_groups_prefill_or_decode(emit, grpc_endpoint):
    groups = emit(model="mixtral", ranks=2, ep_groups=2, roles="disaggregated")["groups"]

    assert [group["role"] for group in groups.values()] == ["prefill", "decode"]
    prefill, decode = groups["0"]["tokens"], groups["1"]["tokens"]
    assert sum(prefill["prefill"]["none"]) > 0 < sum(decode["decode"]["none"])
    assert sum(prefill["decode"]["none"]) == sum(decode["prefill"]["none"]) == 0
    assert groups["1"]["latency"]["ttft"]["observations"] > 0


def test_every_metric_of_the_registry_is_emitted_but_those_that_only_engines_have(emit, grpc_endpoint):
    emit(model="kimi-k3", ranks=2, scenarios=["dead-rank@1m"])
    emitted = {
        metric.name
        for body in grpc_endpoint.bodies
        for rm in ExportMetricsServiceRequest.FromString(body).resource_metrics
        for metric in rm.scope_metrics[0].metrics
    }

    missing = {metric.name for metric in METRICS} - emitted
    assert missing <= {"moe.expert.duration", "moe.telemetry.export.failures"}


def test_a_rank_of_k3_sends_fewer_than_250_points_a_window_after_its_first(emit, grpc_endpoint):
    emit(model="kimi-k3", ranks=2)
    points: Counter = Counter()
    for body in grpc_endpoint.bodies:
        for rm in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            at = {item.key: item.value.string_value for item in rm.resource.attributes}
            for metric in rm.scope_metrics[0].metrics:
                data = getattr(metric, metric.WhichOneof("data")).data_points
                for point in data:
                    points[at["service.instance.id"], point.time_unix_nano] += 1

    first = {instance: min(end for who, end in points if who == instance) for instance, _ in points}
    later = [count for (instance, end), count in points.items() if end != first[instance]]
    assert len(later) >= 4
    assert max(later) < 250


def test_truth_of_requests_does_not_follow_their_metrics(emit, monkeypatch: pytest.MonkeyPatch):
    right = emit(model="mixtral")["groups"]["0"]
    monkeypatch.setattr(FinishedRequest, "keeps", lambda *_, **__: False)
    monkeypatch.setattr(FinishedRequest, "token_seconds", 13.0)

    wrong = emit(model="mixtral")["groups"]["0"]

    assert right["goodput"]["good_requests"] > 0
    assert wrong["goodput"] == right["goodput"]
    assert wrong["latency"]["tpot"] == right["latency"]["tpot"]
