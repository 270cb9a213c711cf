"""Latency, memory and traffic from a store to the terminal and to JSON, in known odd amounts."""

import json

import clickhouse_connect
import numpy as np
import pytest

from moescope.analysis import report
from moescope.analysis.cache_state import read_cache_history
from moescope.analysis.computed_tokens import read_computed_tokens
from moescope.analysis.expert_costs import describe_costs, read_expert_costs
from moescope.analysis.failover import read_failovers
from moescope.analysis.gpus import read_gpus
from moescope.analysis.memory import read_pool_history
from moescope.analysis.span import cover, list_deployments
from moescope.analysis.store import open_store
from moescope.schemas.attributes import DurationSource, Excluded, FailoverReason, MemoryPool, Phase
from moescope.schemas.settings import Settings
from tests.analysis import known_telemetry as known
from tests.analysis.known_workloads import KnownFleet

FLEET = KnownFleet(num_ranks=13, num_layers=5, minutes=3)
SETTINGS = Settings(rank_hour_price=3.5)
WINDOW = {"window_seconds": 900.0}
FINISHED = FLEET.minutes * (known.GOOD_REQUESTS + known.SLOW_REQUESTS)


@pytest.fixture(scope="module")
def dsn(tmp_path_factory):
    return known.make_telemetry_store(tmp_path_factory.mktemp("telemetry") / "store", FLEET)


@pytest.fixture(scope="module")
def store(dsn):
    opened = open_store(dsn)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def span(store):
    (deployment,) = list_deployments(store)
    return cover(deployment, 900.0, ep_group=FLEET.ep_group)


def _distribution(answer, metric, **where):
    (only,) = [
        one
        for one in answer.to_dict()["deployments"][0]["distributions"]
        if one["metric"] == metric and all(one[key] == value for key, value in where.items())
    ]
    return only


def test_latency_has_every_request_once(store):
    answer = report.latency(store, settings=SETTINGS, **WINDOW)
    ttft = _distribution(answer, "gen_ai.server.time_to_first_token")
    gaps = _distribution(answer, "moe.request.inter_token_latency")
    assert ttft["observations"] == FINISHED
    assert ttft["mean"] == pytest.approx((13 * 0.3 + 7 * 3.0) / 20)
    assert gaps["observations"] == FINISHED * (known.OUTPUT_TOKENS - 1)
    assert gaps["mean"] == pytest.approx(known.TPOT_SECONDS)


def test_dispatch_and_combine_stand_apart_by_phase(store):
    answer = report.latency(store, settings=SETTINGS, **WINDOW)
    for stage in ("dispatch", "combine"):
        for phase, seconds in (("prefill", 0.013), ("decode", 0.0013)):
            one = _distribution(answer, "moe.dispatch.duration", stage=stage, phase=phase)
            assert one["observations"] == 79 * FLEET.num_ranks * FLEET.minutes
            assert one["mean"] == pytest.approx(seconds)


def test_goodput_and_its_cost(store):
    good = report.latency(store, settings=SETTINGS, **WINDOW).to_dict()["deployments"][0]["goodput"]
    good_tokens = FLEET.minutes * known.GOOD_REQUESTS * known.OUTPUT_TOKENS
    assert good["good_share"] == 0.65
    assert good["good_tokens"] == good_tokens
    assert good["ranks"] == FLEET.num_ranks
    hours = FLEET.minutes / 60
    assert good["cost_per_thousand_good_tokens"] == pytest.approx(3.5 * 13 * hours / good_tokens * 1000)


def test_report_fails_where_the_contract_is_missed_too_often(store):
    assert report.latency(store, settings=SETTINGS, **WINDOW).has_problem
    lenient = Settings(contract_missed_share=0.35)
    assert not report.latency(store, settings=lenient, **WINDOW).has_problem


def test_percentiles_of_a_minute_are_those_of_the_view(store, dsn):
    answer = report.latency(store, settings=SETTINGS, **WINDOW).answers[0]
    client = clickhouse_connect.get_client(dsn=dsn, database=SETTINGS.database)
    rows = client.query(
        "SELECT p50_seconds, p90_seconds, p99_seconds FROM request_latency WHERE metric = 'ttft'"
    )
    client.close()
    (ttft, *_) = answer.requests.values()
    ours = np.stack([ttft.p50, ttft.p90, ttft.p99], axis=1)
    np.testing.assert_allclose(ours, rows.result_rows)


def test_memory_names_the_full_pool_and_no_weights(store):
    answer = report.memory(store, settings=SETTINGS, **WINDOW)
    (group,) = answer.to_dict()["groups"]
    assert [(one["ep_rank"], one["pool"]) for one in group["full_pools"]] == [(12, "kda_state")]
    assert group["ranks"][3]["pools"]["mla_kv_cache"]["used_bytes"] == 23 * known.GIB
    assert group["ranks"][3]["pools"]["replication"]["limit_bytes"] is None
    assert answer.has_problem
    assert not report.memory(store, settings=Settings(memory_full_ratio=0.995), **WINDOW).has_problem


def test_caches_are_told_apart(store):
    (group,) = report.memory(store, settings=SETTINGS, **WINDOW).to_dict()["groups"]
    assert group["caches"] == [
        {
            "ep_rank": 0,
            "kda_slots": 79,
            "kda_slots_limit": 128,
            "mla_blocks": 2_302,
            "mla_blocks_limit": 7_919,
        }
    ]
    assert group["prefix_cache"]["hit_tokens"] == 700 * FLEET.minutes
    assert group["prefix_cache"]["ratio"] == 0.83


def test_traffic_is_exact_to_the_byte_and_the_token(store):
    answer = report.traffic(store, **WINDOW)
    (group,) = answer.to_dict()["groups"]
    assert [one["phase"] for one in group["phases"]] == ["prefill", "decode"]
    decode = group["phases"][1]
    for rank, peer in ((0, 12), (7, 3), (12, 0)):
        assert decode["bytes_sent"][rank][peer] == FLEET.minutes * known.bytes_between(rank, peer)
        assert decode["bytes_received"][peer][rank] == decode["bytes_sent"][rank][peer]
        assert decode["tokens"][rank][peer] == 23 * FLEET.minutes
        assert decode["assignments"][rank][peer] == 79 * FLEET.minutes
    assert decode["dedup_factor"] == 79 / 23
    assert 0 < decode["share_that_leaves_node"] < 1
    assert not answer.has_problem


def test_waits_point_at_the_last_rank(store):
    text = report.traffic(store, **WINDOW).to_text()
    assert "longest for rank 12" in text


@pytest.mark.parametrize("name", ["latency", "memory", "traffic"])
def test_report_is_plain_json_and_fits_the_terminal(store, name):
    extra = {} if name == "traffic" else {"settings": SETTINGS}
    answer = getattr(report, name)(store, **WINDOW, **extra)
    assert json.loads(json.dumps(answer.to_dict(), allow_nan=False)) == answer.to_dict()
    lines = answer.to_text(100).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("known-fleet")


@pytest.mark.parametrize("name", ["latency", "memory", "traffic"])
def test_service_that_is_not_there_gets_the_way_out(store, name):
    extra = {} if name == "traffic" else {"settings": SETTINGS}
    answer = getattr(report, name)(store, service="elsewhere", **WINDOW, **extra)
    assert answer.to_text().startswith("No telemetry is stored of elsewhere.")
    assert not answer.has_problem


def test_pools_and_caches_over_time(store, span):
    pools, caches = read_pool_history(store, span), read_cache_history(store, span)
    assert pools.fullest_ratio[MemoryPool.KDA_STATE] == pytest.approx([0.99] * FLEET.minutes)
    assert caches.kda_ratio.tolist() == [79 / 128] * FLEET.minutes
    assert caches.copies_on_write.tolist() == [7 / 60] * FLEET.minutes
    assert caches.has_copies


def test_excluded_rows_are_counted_apart(store, span):
    tokens = read_computed_tokens(store, span)
    totals = {(kind.phase, kind.excluded): total for kind, total in tokens.totals.items()}
    assert totals[Phase.DECODE, Excluded.NONE] == FLEET.minutes * FLEET.tokens_per_minute
    assert totals[Phase.DECODE, Excluded.PADDING] == 23 * FLEET.num_ranks * FLEET.minutes


def test_gpus_stand_with_their_ranks(store, span):
    gpus = read_gpus(store, span)
    assert [gpu.ep_rank for gpu in gpus] == list(range(13))
    assert gpus[5].host == "node-1"
    assert gpus[5].utilization == pytest.approx(0.79)
    assert gpus[5].memory_ratio == 115 / 141
    assert gpus[5].sent_bytes_per_second == pytest.approx(7_919_000_000 / 60)
    assert gpus[5].received_bytes_per_second is None


def test_one_experts_time_is_apportioned_by_tokens(store, span):
    layer = FLEET.first_layer + 2
    costs = read_expert_costs(store, span, layer, known.FAILED_EXPERT)
    decode = costs.latency[Phase.DECODE]
    assert decode.source is DurationSource.APPORTIONED
    counts = FLEET.counts(Phase.DECODE)[:, 2]
    np.testing.assert_allclose(decode.share_of_layer, counts[:, known.FAILED_EXPERT] / counts.sum(axis=1))
    spent = 79_000_000 * FLEET.num_ranks
    np.testing.assert_allclose(decode.ns_per_token, spent / counts.sum(axis=1))


def test_one_experts_memory_and_failovers(store, span):
    costs = read_expert_costs(store, span, FLEET.first_layer + 2, known.FAILED_EXPERT)
    assert (costs.memory.bytes_total, costs.memory.sized_copies) == (13_000_001, 1)
    assert costs.failovers == {FailoverReason.RANK_DOWN: 7 * FLEET.minutes}
    assert describe_costs(costs) == (
        "Its weights take 12.4 MiB. Another copy stood in for it 21 times in this window (21 rank down)."
    )


def test_expert_without_costs_says_nothing(store, span):
    costs = read_expert_costs(store, span, 99, 0)
    assert costs.latency == {}
    assert describe_costs(costs) == ""


def test_failovers_name_the_expert(store, span):
    failovers = read_failovers(store, span)
    assert failovers.total == 7 * FLEET.minutes
    (only,) = failovers.experts
    assert (only.layer, only.expert) == (FLEET.first_layer + 2, known.FAILED_EXPERT)
