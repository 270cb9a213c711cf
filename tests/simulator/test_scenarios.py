"""What a scenario does, seen in what the fleet emitted: plants are where the truth says."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from moescope.exporters.otlp_config import load_otlp_config
from moescope.schemas.settings import load_settings
from moescope.schemas.topology import MODEL_SHAPES, every_layer_from
from moescope.simulator import plan as plan_module
from moescope.simulator.fleet import Fleet
from moescope.simulator.plan import backfill_interval, make_plan
from moescope.simulator.scenarios import Scenario, parse_scenarios, plant_of
from moescope.simulator.serving import SERVING_FACTS

SMALL_K3 = every_layer_from("kimi-k3", 1, 5, num_experts=128, top_k=16)
"""K3 with four of its layers and a seventh of its experts: KDA state and all."""


@pytest.fixture
def emit(grpc_endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(plan_module.MODEL_SHAPES, "kimi-k3", SMALL_K3)

    def run(scenarios: str = "", *, minutes: int = 4, **changes) -> dict:
        arguments = {"model": "kimi-k3", "ranks": 8, "tensor_parallel": 1, "seed": 7, "service": None}
        made = make_plan(**{**arguments, "scenarios": [scenarios], **changes})
        fleet = Fleet(made, load_otlp_config({}, endpoint=grpc_endpoint.url), load_settings({}))
        assert all(fleet.backfill(60 * minutes, 60))
        assert fleet.close(10)
        fleet.write_truth(tmp_path / "truth.json")
        return json.loads((tmp_path / "truth.json").read_text())

    return run


def resources(endpoint) -> list[dict[str, str]]:
    return [
        {item.key: item.value.string_value or item.value.int_value for item in rm.resource.attributes}
        for body in endpoint.bodies
        for rm in ExportMetricsServiceRequest.FromString(body).resource_metrics
    ]


def test_words_become_spans():
    parsed = parse_scenarios(["hot-expert,slow-rank@10m-20m", "dead-rank@15m, silent-rank"])

    assert [(item.scenario.value, item.start_seconds, item.end_seconds) for item in parsed] == [
        ("hot-expert", 0, math.inf),
        ("slow-rank", 600, 1200),
        ("dead-rank", 900, math.inf),
        ("silent-rank", 120, math.inf),
    ]
    assert [parsed[1].is_on(start, start + 60) for start in (540, 570, 600, 1140, 1200)] == [
        *(False, True, True, True, False)
    ]


@pytest.mark.parametrize("model", MODEL_SHAPES)
def test_every_scenario_has_a_plant_for_every_model(model: str):
    shape = MODEL_SHAPES[model]
    with_plant = [scenario for scenario in Scenario if plant_of(scenario, shape, 8)]

    assert set(Scenario) - set(with_plant) == {Scenario.TOPIC_SHIFT, Scenario.ROUTER_DOWN}
    assert model in SERVING_FACTS


def test_plants_of_k3_are_the_documented_ones():
    shape = MODEL_SHAPES["kimi-k3"]

    assert plant_of(Scenario.HOT_EXPERT, shape, 64)["expert"] == 347
    assert plant_of(Scenario.SLOW_RANK, shape, 64) == {"ep_rank": 5, "times_slower": 2.5}
    assert plant_of(Scenario.DEAD_RANK, shape, 64) == {"ep_rank": 7}
    assert plant_of(Scenario.DEAD_RANK, shape, 4) == {"ep_rank": 3}
    assert plant_of(Scenario.KDA_PRESSURE, shape, 64)["ep_rank"] == 3


@pytest.mark.parametrize(
    ("backfill", "asked", "interval"),
    [(600, None, 60), (3600, None, 60), (6 * 3600, None, 300), (24 * 3600, None, 1200), (6 * 3600, 60, 60)],
)
def test_windows_of_a_backfill_grow_beyond_an_hour(backfill: float, asked: float | None, interval: float):
    assert backfill_interval(backfill, asked) == interval


def test_slow_rank_is_waited_for_and_waits_least(emit):
    group = emit("slow-rank")["groups"]["0"]

    for stage, wait in group["wait_ns"].items():
        matrix = np.array(wait)
        assert matrix.sum(axis=0).argmax() == 5, f"{stage}: everybody waits for rank 5"
        assert matrix.sum(axis=1).argmin() == 5, f"{stage}: and rank 5 for nobody"


def test_slow_rank_makes_requests_slower(emit):
    healthy, slow = (emit(words)["groups"]["0"]["latency"] for words in ("", "slow-rank"))

    for metric in ("tpot", "itl", "ttft"):
        means = [part[metric]["seconds"] / part[metric]["observations"] for part in (healthy, slow)]
        assert means[1] > 1.3 * means[0], metric


def test_hot_expert_is_hot_while_it_lasts(emit):
    truth = emit("hot-expert")
    plant = truth["scenarios"][0]["plant"]
    row = truth["layers"].index(plant["layer"])

    counts = np.array(truth["phases"]["decode"])
    assert counts[row].argmax() == plant["expert"]
    assert counts[row].max() > 3 * np.median(counts[row])


def test_dead_rank_goes_silent_and_its_copies_take_over(emit, grpc_endpoint):
    truth = emit("dead-rank@2m", minutes=5)
    group = truth["groups"]["0"]
    table = np.array(group["placement"]["physical_to_logical_map"]).reshape(4, 8, -1)
    lost = {(row, int(expert)) for row in range(4) for expert in table[row, 7]}
    with_copies = {
        (row, expert) for row, expert in lost if (np.delete(table[row], 7, axis=0) == expert).any()
    }

    failovers = {
        (truth["layers"].index(item["layer"]), item["expert"]): item["failovers"]
        for item in group["failovers"]
    }
    assert set(failovers) == with_copies
    assert all(item["reason"] == "rank_down" for item in group["failovers"])
    assert len(with_copies) < len(lost), "experts without a second copy are not chosen while it is dead"
    assert group["lost_requests"] > 0
    windows = sum(resource["moe.ep.rank"] == 7 for resource in resources(grpc_endpoint))
    others = sum(resource["moe.ep.rank"] == 6 for resource in resources(grpc_endpoint))
    assert (windows, others) == (3, 6), "two windows and its end"


def test_dead_rank_is_sent_nothing_while_it_is_dead(emit):
    group = emit("dead-rank@0s", minutes=2)["groups"]["0"]

    for phase in ("prefill", "decode"):
        tokens = np.array(group["traffic"][phase]["tokens"])
        assert tokens[:, 7].sum() == tokens[7].sum() == 0
        assert tokens.sum() > 0


def test_silent_rank_serves_on_unseen(emit):
    group = emit("silent-rank@0s", minutes=2)["groups"]["0"]
    received = np.array(group["traffic"]["decode"]["received"])

    assert received[6].sum() == 0, "it reports nothing"
    assert (np.delete(received[:, 6], 6) > 0).all(), "its peers heard from it"


def test_duplicate_instance_is_one_id_at_two_ranks(emit, grpc_endpoint):
    emit("duplicate-instance@1m-3m")
    by_instance: dict[str, set] = {}
    for resource in resources(grpc_endpoint):
        if resource["moe.component"] == "rank":
            by_instance.setdefault(resource["service.instance.id"], set()).add(resource["moe.ep.rank"])

    assert [ranks for ranks in by_instance.values() if len(ranks) > 1] == [{1, 4}]
    assert sum(4 in ranks for ranks in by_instance.values()) == 3, "before, as somebody else, after"


def test_skewed_clock_is_minutes_ahead(emit, grpc_endpoint):
    emit("skewed-clock", minutes=2)
    ends: dict[int, set] = {}
    for body in grpc_endpoint.bodies:
        for rm in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            at = {item.key: item.value.int_value for item in rm.resource.attributes}
            for metric in rm.scope_metrics[0].metrics:
                if metric.name == "moe.tokens":
                    ends.setdefault(at["moe.ep.rank"], set()).add(metric.sum.data_points[0].time_unix_nano)

    assert {end - other for end, other in zip(sorted(ends[2]), sorted(ends[3]), strict=True)} == {180 * 10**9}


def test_kda_state_ends_first_on_the_planted_rank(emit):
    group = emit("kda-pressure", minutes=12)["groups"]["0"]
    left = [cache["kda_slots_limit"] - cache["kda_slots"] for cache in group["cache"]]

    assert left[3] == 0 < min(left[:3] + left[4:])


def test_router_down_stops_the_tokens(emit):
    healthy, down = (emit(words)["groups"]["0"] for words in ("", "router-down@1m"))

    assert down["goodput"]["requests"] < 0.6 * healthy["goodput"]["requests"]
    assert down["load"]["running"]["last"] == 0


def test_cache_miss_storm_misses(emit):
    def hit_ratio(words: str) -> float:
        tokens = emit(words)["groups"]["0"]["prefix_cache"]
        return (tokens["hit"] + tokens["partial_hit"]) / sum(tokens.values())

    assert hit_ratio("cache-miss-storm") < 0.1
    assert hit_ratio("") > 0.2


def test_long_context_fills_the_kv_cache(emit):
    healthy, long = (emit(words)["groups"]["0"]["cache"] for words in ("", "long-context"))

    assert sum(cache["mla_blocks"] for cache in long) > 2 * sum(cache["mla_blocks"] for cache in healthy)


def test_prefill_congestion_delays_first_tokens(emit):
    healthy, congested = (
        emit(words)["groups"]["0"]["latency"]["ttft"] for words in ("", "prefill-congestion")
    )

    means = [part["seconds"] / part["observations"] for part in (healthy, congested)]
    assert means[1] > 1.5 * means[0]
