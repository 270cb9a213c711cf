"""What a readiness protocol makes of known loads, placements, ages and latencies."""

import dataclasses

import numpy as np
import pytest

from moescope.analysis.assessment import assess_load
from moescope.analysis.clustering import sum_intervals
from moescope.analysis.distribution import BucketRow, describe_distribution
from moescope.analysis.expert_load import RAW, ExpertLoadWindow, LoadScope
from moescope.analysis.frozen import locked_int64
from moescope.analysis.memory import arrange_pools
from moescope.analysis.placement import PlacementSnapshot
from moescope.analysis.readiness import judge_readiness
from moescope.analysis.readiness_check import CheckStatus
from moescope.analysis.readiness_evidence import (
    DelayForecast,
    GroupEvidence,
    ReadinessEvidence,
    Room,
    SlowWorker,
    Unknown,
)
from moescope.analysis.readiness_protocol import ExpertMetric
from moescope.analysis.readiness_reader import limits_of
from moescope.analysis.readiness_values import make_protocol
from moescope.analysis.requests import GoodputSteps, judge_goodput
from moescope.schemas import metrics
from moescope.schemas.attributes import MemoryPool, Phase
from moescope.schemas.settings import Settings
from moescope.schemas.topology import Placement

LAYERS, EXPERTS, RANKS, TOP_K = 3, 64, 8, 4
FIRST_LAYER = 39
FAILED, UNKNOWN, PASSED = CheckStatus
NOTHING = Unknown("nobody asked.")
PLACEMENT = {"total_experts": EXPERTS, "workers": RANKS, "experts_per_worker": EXPERTS // RANKS}


def placed(copies: int = 1) -> PlacementSnapshot:
    """Experts in order, each further copy one rank on."""
    slots = [np.roll(np.arange(EXPERTS).reshape(RANKS, -1), shift, axis=0) for shift in range(copies)]
    table = np.tile(np.concatenate(slots, axis=1).reshape(1, -1), (LAYERS, 1))
    replicas = Placement(table, RANKS, EXPERTS).replicas_per_rank_layer_expert().astype(np.uint16)
    return PlacementSnapshot(0, RANKS, locked_int64(np.arange(RANKS)), replicas)


def load(placement: PlacementSnapshot | None, values: dict, *, hot: float = 1.0, mean: float = 1000):
    """A uniform router; ``hot`` multiplies expert 47 of layer 40, which is on rank 5."""
    rng = np.random.default_rng(79)
    rates = np.full((LAYERS, EXPERTS), mean / 13)
    rates[1, 47] *= hot
    passes = rng.poisson(np.broadcast_to(rates, (13, *rates.shape)))
    scope = LoadScope("known", "0", Phase.DECODE, EXPERTS, LAYERS, 0, 60_000)
    window = ExpertLoadWindow(
        *(scope, RAW, 0, 60_000, locked_int64(np.arange(LAYERS) + FIRST_LAYER)),
        locked_int64(passes.sum(axis=0)),
        sum_intervals(passes),
        locked_int64(np.full(LAYERS, 13)),
    )
    return assess_load(window, placement, limits_of(make_protocol(values), Settings()))


def group(**changes) -> GroupEvidence:
    nothing = {
        field.name: NOTHING
        for field in dataclasses.fields(GroupEvidence)
        if field.name not in {"ep_group", "plan_options", "is_placement_assumed"}
    }
    return GroupEvidence(**{"ep_group": "0", "plan_options": "--service known", **nothing, **changes})


def judge(values: dict, *groups: GroupEvidence, strict: bool = False, **changes):
    evidence = {
        "source": "known",
        "groups": groups or (group(),),
        "goodput": NOTHING,
        "contract_ttft_seconds": 2.0,
        "contract_tpot_seconds": 0.1,
        "latency": {},
        "requests_by_front_end": NOTHING,
        **changes,
    }
    return judge_readiness(make_protocol(values), ReadinessEvidence(**evidence), Settings(), is_strict=strict)


def check(readiness, name: str, scope: str = ""):
    (only,) = [one for one in readiness.checks if one.name == name and one.scope == scope]
    return only


def with_load(values: dict, placement: PlacementSnapshot | None = None, **shape) -> GroupEvidence:
    placement = placed() if placement is None else placement
    return group(loads={Phase.DECODE: load(placement, values, **shape)}, top_k=TOP_K)


def test_experts_where_they_should_be():
    values = {"expert_placement": PLACEMENT | {"failover_strategy": "block"}}
    readiness = judge(values, with_load(values))

    assert {one.name: one.status for one in readiness.checks} == dict.fromkeys(
        ("total_experts", "workers", "experts_per_worker", "redundant_experts", "failover_strategy"), PASSED
    )
    assert readiness.is_ready


def test_another_model_fewer_workers_and_missing_copies_are_named():
    values = {
        "expert_placement": {
            "total_experts": 79,
            "workers": 13,
            "experts_per_worker": 7,
            "redundant_experts": 12,
        }
    }
    readiness = judge(values, with_load(values))

    assert check(readiness, "total_experts").measured == EXPERTS
    workers = check(readiness, "workers")
    assert workers.measured == RANKS
    assert "missing" not in workers.action, "all of the group said which experts they hold"
    assert check(readiness, "redundant_experts").evidence == "No expert has a second copy."
    held = check(readiness, "experts_per_worker")
    assert (held.status, held.measured, held.limit) == (FAILED, 8, 7)
    assert "Rank 0 holds 8 copies in layer 39, where 7 are meant" in held.evidence


def test_more_copies_than_are_asked_for_are_no_fault_of_a_worker():
    values = {"expert_placement": PLACEMENT | {"failover_strategy": "block"}}
    held = check(judge(values, with_load(values, placed(2))), "experts_per_worker")

    assert (held.status, held.measured, held.limit) == (PASSED, 16, 16)
    assert held.evidence == "Every rank holds 16 in every layer (8 of 64 and a part of 64 redundant)."


def test_copies_that_are_all_on_one_worker_are():
    replicas = placed().replicas.copy()
    replicas[3, :, :8] = 1  # rank 3 holds the experts of rank 0 too
    lumped = dataclasses.replace(placed(), replicas=replicas)
    values = {"expert_placement": PLACEMENT | {"failover_strategy": "block"}}
    held = check(judge(values, with_load(values, lumped)), "experts_per_worker")

    assert (held.status, held.measured, held.limit) == (FAILED, 16, 9)
    assert "Rank 3 holds 16 copies in layer 39, where 9 are meant" in held.evidence


def test_advice_starts_from_the_copies_that_are_there():
    values = {
        "load_balance_check": {"phases": ["decode"]},
        "partial_failure": {"worker_down": {"max_traffic_share": 0}},
    }
    replicas = placed().replicas.copy()
    replicas[7, :, :13] = 1  # 13 experts, 8 of rank 0 and 5 of rank 1, have a copy on rank 7
    some = dataclasses.replace(placed(), replicas=replicas)
    readiness = judge(values, with_load(values, some, hot=79))

    hot = check(readiness, "hot_experts", "decode")
    assert hot.action.endswith("`moescope plan --service known --redundant-experts 21`.")
    lost = check(readiness, "worker_down.max_traffic_share")
    assert lost.action.startswith(
        "A second copy of every expert takes 64 redundant experts a layer (13 now): `moescope plan "
        "--service known --redundant-experts N` says what N cover."
    )


def test_a_missing_rank_is_named():
    whole = placed()
    some = PlacementSnapshot(
        0, RANKS, locked_int64([0, 1, 2, 4, 5, 6, 7]), whole.replicas[[0, 1, 2, 4, 5, 6, 7]]
    )
    values = {"expert_placement": PLACEMENT}
    workers = check(judge(values, with_load(values, some)), "workers")

    assert (workers.status, workers.measured) == (FAILED, 7)
    assert "Rank 3 did not" in workers.evidence
    assert "Start the missing workers" in workers.action


@pytest.mark.parametrize(
    ("copies", "down", "status"),
    [
        (1, {}, FAILED),
        (1, {"partial_failure": {"worker_down": {"max_traffic_share": 1}}}, FAILED),
        (2, {}, PASSED),
    ],
)
def test_reassigning_needs_somewhere_to_reassign_to(copies: int, down: dict, status: CheckStatus):
    values = {"expert_placement": PLACEMENT | {"redundant_experts": EXPERTS * (copies - 1)}} | down
    strategy = check(judge(values, with_load(values, placed(copies))), "failover_strategy")

    assert strategy.status is status
    if status is FAILED:
        assert "nothing to reassign tokens to" in strategy.evidence
        assert "fallback_expert" in strategy.action


def test_some_second_copies_are_enough_where_the_protocol_says_what_a_loss_may_cost():
    replicas = placed().replicas.copy()
    replicas[7, :, 0] = 1  # expert 0 of rank 0 has a copy on rank 7
    some = dataclasses.replace(placed(), replicas=replicas)
    rules = {"expert_placement": PLACEMENT | {"redundant_experts": 1}}
    with_limit = rules | {"partial_failure": {"worker_down": {"max_traffic_share": 0.15}}}

    assert check(judge(rules, with_load(rules, some)), "failover_strategy").status is FAILED
    accepted = judge(with_limit, with_load(with_limit, some))
    assert check(accepted, "failover_strategy").status is PASSED
    assert check(accepted, "worker_down.max_traffic_share").status is PASSED


def test_an_even_load_passes_and_says_what_chance_shows():
    values = {"load_balance_check": {"phases": ["decode"]}}
    ratio = check(judge(values, with_load(values)), "acceptable_imbalance_ratio", "decode")

    assert ratio.status is PASSED
    assert ratio.measured < 1.1
    assert "net of chance" in ratio.evidence


@pytest.mark.parametrize(
    ("measure", "limit", "expected"),
    [("max_over_mean", 2.0, 3.28), ("mean_over_max", 0.5, 0.305), ("max_over_mean_minus_1", 1.0, 2.28)],
)
def test_a_hot_expert_is_named_with_its_rank_whatever_the_measure(
    measure: str, limit: float, expected: float
):
    values = {"load_balance_check": {"measure": measure, "phases": ["decode"]}}
    readiness = judge(values, with_load(values, hot=79 / 2))
    ratio, hot = (check(readiness, name, "decode") for name in ("acceptable_imbalance_ratio", "hot_experts"))

    assert (ratio.status, ratio.limit) == (FAILED, limit)
    assert ratio.measured == pytest.approx(expected, rel=0.3)
    assert "Layer 40" in ratio.evidence
    assert "rank 5" in ratio.evidence
    assert "Without expert 47 it would be" in ratio.evidence
    assert (hot.status, hot.measured) == (FAILED, 1)
    assert hot.evidence.startswith("Layer 40, expert 47 (rank 5) gets 39")
    assert "expert 47 of layer 40" in hot.action


def test_a_limit_on_what_one_expert_may_take_finds_it_before_the_layer_is_imbalanced():
    values = {"load_balance_check": {"phases": ["decode"], "hot_experts": {"max_worker_share": 0.4}}}
    readiness = judge(values, with_load(values, hot=5))

    assert check(readiness, "acceptable_imbalance_ratio", "decode").status is PASSED
    assert check(readiness, "hot_experts", "decode").status is FAILED


def test_too_little_load_is_not_judged():
    values = {"load_balance_check": {"phases": ["decode"]}}
    ratio = check(judge(values, with_load(values, mean=2)), "acceptable_imbalance_ratio", "decode")

    assert ratio.status is UNKNOWN
    assert "30 independent ones are needed" in ratio.evidence


def test_a_phase_without_load_is_not_judged():
    values = {"load_balance_check": {}}
    readiness = judge(values, with_load(values))

    assert check(readiness, "hot_experts", "prefill").evidence == "no prefill was counted in the window."
    assert check(readiness, "hot_experts", "decode").status is PASSED


def test_one_worker_of_eight_takes_an_eighth_of_the_work_and_hits_nearly_every_token():
    rules = {"max_traffic_share": 0.13, "max_token_share": 0.5, "max_request_share": 0.5}
    values = {
        "expert_placement": PLACEMENT | {"failover_strategy": "fallback_expert"},
        "partial_failure": {"worker_down": rules},
    }
    readiness = judge(values, dataclasses.replace(with_load(values), tokens_per_request=23.0))
    traffic, tokens, requests = (check(readiness, f"worker_down.{name}") for name in rules)

    assert traffic.measured == pytest.approx(1 / RANKS, rel=0.02)
    assert traffic.status is PASSED
    assert "8 of 64 experts" in traffic.evidence
    assert "the next best expert computes them" in traffic.evidence
    assert tokens.measured == pytest.approx(1 - (1 - 1 / RANKS) ** (TOP_K * LAYERS), rel=0.05)
    assert (tokens.status, requests.status) == (FAILED, FAILED)
    assert requests.measured > 0.999


def test_a_second_copy_of_each_expert_saves_every_token():
    down = {"max_request_share": 0, "max_imbalance_ratio": 2.0}
    values = {
        "expert_placement": PLACEMENT | {"redundant_experts": EXPERTS},
        "partial_failure": {"worker_down": down},
    }
    readiness = judge(values, dataclasses.replace(with_load(values, placed(2)), tokens_per_request=23.0))

    assert check(readiness, "worker_down.max_traffic_share").measured == 0
    assert check(readiness, "worker_down.max_request_share").measured == 0
    ratio = check(readiness, "worker_down.max_imbalance_ratio")
    assert ratio.measured == pytest.approx(1.5 * 7 / 8, rel=0.05), "one neighbour takes half of the load"
    assert readiness.is_ready


def test_only_the_ranks_that_are_asked_for_are_lost():
    values = {"partial_failure": {"worker_down": {"ranks": [3]}}}

    assert (
        "If rank 3 fails" in check(judge(values, with_load(values)), "worker_down.max_traffic_share").evidence
    )


def test_a_slow_worker_is_named_and_another_rank_is_not_asked_for():
    slow = SlowWorker(ranks=(5,), evidence="Rank 5 is slow.", action="Look at it.")
    node = SlowWorker(ranks=(6, 7), evidence="A node is slow.", action="Look at its link.")
    one = group(slow_workers=(slow, node))
    anybody = check(judge({"partial_failure": {"worker_slow": {}}}, one), "worker_slow")
    other = check(judge({"partial_failure": {"worker_slow": {"rank": 4}}}, one), "worker_slow")
    last = check(judge({"partial_failure": {"worker_slow": {"rank": 7}}}, one), "worker_slow")
    none = check(judge({"partial_failure": {"worker_slow": {}}}, group(slow_workers=())), "worker_slow")

    assert (anybody.status, anybody.action) == (FAILED, "Look at it.")
    assert anybody.evidence == "Rank 5 is slow. 1 other is slow too."
    assert (other.status, other.evidence) == (PASSED, "Rank 4 is not slower than the others now.")
    assert last.evidence == "A node is slow."
    assert none.evidence == "No rank is slower than the others now."


def test_a_slow_worker_that_does_not_exist_is_not_passed():
    values = {"partial_failure": {"worker_slow": {"rank": 99}}}
    known = dataclasses.replace(with_load(values), slow_workers=())
    slow = check(judge(values, known), "worker_slow")

    assert slow.status is UNKNOWN
    assert slow.evidence == "Rank 99 is no rank that said which experts it holds."


def test_a_predicted_delay_is_held_against_its_limit():
    forecast = DelayForecast(rank=5, token_share=0.9, ttft_seconds=3.0, tpot_seconds=None, evidence="Rank 5.")
    limits = {"max_ttft": 2, "max_tpot": 0.1, "max_token_share": 0.95}
    readiness = judge({"partial_failure": {"worker_slow": limits}}, group(when_slow=forecast))

    assert check(readiness, "worker_slow.max_ttft").status is FAILED
    assert check(readiness, "worker_slow.max_tpot").status is UNKNOWN
    assert check(readiness, "worker_slow.max_token_share").status is PASSED


def test_the_busiest_front_end_and_what_an_outage_costs():
    rules = {"outage": "30s", "max_request_share": 0.6, "max_ttft": "40s"}
    row = BucketRow(0, np.array([1.0, 5.0, 79.0]), np.array([50.0, 50.0, 0.0, 0.0]), 100, 130.0)
    latency = {metrics.TIME_TO_FIRST_TOKEN: describe_distribution(metrics.TIME_TO_FIRST_TOKEN, [row])}
    readiness = judge(
        {"partial_failure": {"router_down": rules}},
        latency=latency,
        requests_by_front_end={"first": 13, "second": 7},
    )

    assert check(readiness, "router_down.max_request_share").measured == 0.65
    ttft = check(readiness, "router_down.max_ttft")
    assert ttft.measured == pytest.approx(30 + 4.2)
    assert ttft.status is PASSED


def test_the_rank_that_is_furthest_behind_is_what_counts():
    ages = {
        ExpertMetric.ACTIVATION_COUNT: {0: 7.0, 3: 400.0, 5: 13.0},
        ExpertMetric.LATENCY: {},
        ExpertMetric.MEMORY: {0: 79.0},
        ExpertMetric.FAILOVER_COUNT: Unknown("vLLM says nothing."),
    }
    readiness = judge({"expert_metrics": {}}, group(ages=ages))

    late = check(readiness, "activation_count_per_minute")
    assert (late.status, late.measured) == (FAILED, 400)
    assert "Rank 3 is late, the others are not" in late.evidence
    assert late.action == "Nothing new comes from rank 3: `moescope report quality`."
    assert check(readiness, "latency").evidence == "No rank exports expert times."
    assert check(readiness, "memory").status is PASSED
    assert check(readiness, "failover_count").status is UNKNOWN


def test_a_pool_has_its_own_limit_and_the_fullest_rank_counts():
    pools = arrange_pools(
        locked_int64([0, 1, 0, 1]),
        [MemoryPool.KDA_STATE, MemoryPool.KDA_STATE, MemoryPool.MLA_KV_CACHE, MemoryPool.MLA_KV_CACHE],
        np.array([30.0, 90.0, 50.0, 40.0]),
        np.array([100.0, 100.0, 100.0, 100.0]),
        full_ratio=0.95,
    )
    room = (
        Room(ranks=(0,), fits=79, evidence=""),
        Room(ranks=(1,), fits=3, evidence="KDA state ends first."),
    )
    values = {"memory": {"pools": {"kda_state": 0.8}, "requests_that_fit": {"requests": 4, "tokens": 1000}}}
    readiness = judge(values, group(pools=pools, room=room))

    kda, mla, fits = (
        check(readiness, name) for name in ("pools.kda_state", "pools.mla_kv_cache", "requests_that_fit")
    )
    assert (kda.status, kda.measured, kda.limit) == (FAILED, 0.9, 0.8)
    assert "rank 1" in kda.evidence
    assert mla.status is PASSED
    assert (fits.status, fits.measured) == (FAILED, 3)
    assert fits.evidence.endswith("KDA state ends first.")


def goodput(requests: int, good: int):
    one = [np.array([value]) for value in (requests, good, requests * 23, good * 23, RANKS)]
    steps = GoodputSteps(np.array([0], dtype="datetime64[ms]"), *one, np.array([60.0]))
    return judge_goodput(steps, 60.0, Settings())


def test_goodput_needs_requests_and_its_share():
    assert check(judge({"goodput": {}}, goodput=goodput(100, 94)), "min_share").status is FAILED
    assert check(judge({"goodput": {}}, goodput=goodput(100, 95)), "min_share").status is PASSED
    few = judge({"goodput": {"min_requests": 13}}, goodput=goodput(12, 12))
    assert check(few, "min_share").status is UNKNOWN


def latency_of(share_of_ttft_within_one_second: float):
    """Histograms with known parts below 1 s and 50 ms; all TPOT lie there."""
    below = round(100 * share_of_ttft_within_one_second)
    first = BucketRow(0, np.array([1.0, 7.0]), np.array([below, 100 - below, 0.0]), 100, 100.0)
    rest = BucketRow(0, np.array([0.05, 7.0]), np.array([100.0, 0.0, 0.0]), 100, 3.0)
    return {
        metric: describe_distribution(metric, [row])
        for metric, row in (
            (metrics.TIME_TO_FIRST_TOKEN, first),
            (metrics.TIME_PER_OUTPUT_TOKEN, rest),
        )
    }


@pytest.mark.parametrize(
    ("ttft_within", "min_share", "status"), [(1.0, 0.9, PASSED), (0.5, 0.95, FAILED), (0.9, 0.895, UNKNOWN)]
)
def test_another_contract_than_the_engines_is_judged_as_far_as_histograms_tell(
    ttft_within: float, min_share: float, status: CheckStatus
):
    values = {"goodput": {"min_share": min_share, "contract": {"ttft": 1, "tpot": 0.05}}}
    found = check(judge(values, goodput=goodput(100, 100), latency=latency_of(ttft_within)), "min_share")

    assert found.status is status
    assert "another contract" in found.evidence


def test_what_is_not_known_fails_only_when_strict_and_when_nothing_else_passed():
    values = {"goodput": {}, "memory": {}}
    half = {"goodput": goodput(100, 100)}

    assert judge(values, **half).is_ready
    assert not judge(values, strict=True, **half).is_ready
    assert not judge(values).is_ready, "nothing was checked at all"


def test_several_groups_are_told_apart():
    values = {"expert_placement": PLACEMENT}
    readiness = judge(values, with_load(values), group(ep_group="1"))

    assert check(readiness, "workers", "EP group 0").status is PASSED
    assert check(readiness, "workers", "EP group 1").status is UNKNOWN
