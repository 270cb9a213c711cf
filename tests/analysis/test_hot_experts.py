"""Hot experts: certain before they are named, and ranked by the harm they do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from moescope.analysis.clustering import estimate_design_effect, sum_intervals
from moescope.analysis.hot_experts import flag_hot_experts, rank_by_harm, times_median
from moescope.analysis.imbalance import compute_rank_loads, judge_imbalance

RULE = {"ratio": 2.0, "confidence": 0.99}
NUM_EXPERTS = 896


def _flag(counts, effect=1.0):
    counts = np.atleast_2d(counts)
    return flag_hot_experts(counts, np.full(len(counts), float(effect)), **RULE)


def _simulate(seed, rates, *, cluster=1, intervals=15):
    """Flags of tokens that choose by ``rates [layers, experts]`` in clusters, with D estimated."""
    rng = np.random.default_rng(seed)
    counts = cluster * rng.poisson(rates / cluster / intervals, (intervals, *rates.shape))
    total = counts.sum(axis=0)
    return flag_hot_experts(total, estimate_design_effect(total, sum_intervals(counts)), **RULE)


@pytest.mark.parametrize("cluster", [1, 8, 30])
@pytest.mark.parametrize("mean", [1, 5, 20, 100])
@pytest.mark.parametrize("intervals", [2, 15])
def test_uniform_router_has_no_hot_experts(mean, cluster, intervals):
    flags = _simulate(
        [mean, cluster], np.full((97, NUM_EXPERTS), float(mean)), cluster=cluster, intervals=intervals
    )
    assert flags.sum() / len(flags) <= 0.1


def test_naive_rule_would_cry_wolf_on_the_same_router():
    counts = np.random.default_rng(1).poisson(1.0, (97, NUM_EXPERTS))
    naive = counts > 2 * np.median(counts, axis=1, keepdims=True)
    assert naive.sum(axis=1).mean() > 60
    assert not _flag(counts).any()


# Counts at which an expert of k times the median is found. 1 % of the experts are planted; a single one
# needs about three times as many, since the prior is fitted to the layer.
@pytest.mark.parametrize(
    ("times", "cluster", "mean", "recall"),
    [
        *((3, 1, 100, 0.95), (3, 8, 1000, 0.95), (3, 30, 3000, 0.95)),
        *((6, 1, 5, 0.6), (6, 1, 20, 0.95), (6, 8, 100, 0.95)),
    ],
)
def test_planted_experts_are_found(times, cluster, mean, recall):
    rates = np.full((47, NUM_EXPERTS), float(mean))
    planted = np.arange(13, NUM_EXPERTS, 97)
    rates[:, planted] *= times
    flags = _simulate([times, cluster, mean], rates, cluster=cluster)
    assert flags[:, planted].mean() >= recall
    others = np.setdiff1d(np.arange(NUM_EXPERTS), planted)
    assert flags[:, others].sum() / len(flags) <= 0.1


@pytest.mark.parametrize(("cluster", "mean"), [(1, 300), (8, 3000), (30, 10_000)])
def test_single_planted_expert_is_found_and_no_other(cluster, mean):
    rates = np.full((47, NUM_EXPERTS), float(mean))
    rates[:, 347] *= 3
    flags = _simulate([cluster, mean], rates, cluster=cluster)
    assert flags[:, 347].mean() >= 0.95
    assert flags.sum() == flags[:, 347].sum()


def test_lognormal_rates_flag_about_those_that_truly_lie_above_twice_the_median():
    rng = np.random.default_rng(23)
    rates = 1000 * rng.lognormal(0, 0.5, (23, NUM_EXPERTS))
    truly_hot = rates > 2 * np.median(rates, axis=1, keepdims=True)
    flags = _simulate(23, rates)
    assert truly_hot.mean() == pytest.approx(0.08, abs=0.01)
    assert (flags & ~truly_hot).sum() / flags.sum() < 0.01
    assert (flags & truly_hot).sum() / truly_hot.sum() > 0.8


def test_expert_at_exactly_twice_the_median_is_not_a_hotspot():
    counts = np.full(NUM_EXPERTS, 79_000)
    counts[347] = 158_000
    assert not _flag(counts).any()


def test_expert_well_above_twice_the_median_is_one():
    counts = np.full(NUM_EXPERTS, 79_000)
    counts[347] = 3 * 79_000
    assert np.argwhere(_flag(counts)).tolist() == [[0, 347]]


def test_layer_without_tokens_has_no_hot_experts():
    assert not _flag(np.zeros((2, 7), dtype=np.int64)).any()


def test_layer_whose_clustering_is_unknown_is_not_judged():
    counts = np.full(NUM_EXPERTS, 79)
    counts[13] = 79_000
    assert not _flag(counts, effect=np.nan).any()
    assert _flag(counts)[0, 13]


@given(hnp.arrays(np.int64, (2, 11), elements=st.integers(0, 10**9)), st.floats(1, 100))
def test_more_clustering_never_makes_more_experts_hot_than_there_are_above_the_mean(counts, effect):
    flags = _flag(counts, effect)
    assert flags.shape == counts.shape
    assert not flags[counts <= np.median(counts, axis=1, keepdims=True)].any()


# --- harm ---------------------------------------------------------------------------------------------------


def _blocks(ranks, experts):
    held = np.arange(experts) * ranks // experts == np.arange(ranks)[:, None]
    return held[:, None, :].astype(np.uint16)


def _rank(counts, replicas, hot, acceptable=2.0):
    counts = np.atleast_2d(counts)
    loads = compute_rank_loads(counts, replicas)
    balance = judge_imbalance(loads, np.ones(len(counts)), acceptable_ratio=acceptable, min_mean_load=30)
    flags = np.zeros(counts.shape, dtype=bool)
    flags[0, hot] = True
    return rank_by_harm(
        *(flags, np.array([41]), counts, replicas, balance),
        harmful_capacity_share=0.5,
        harmful_relief_share=0.25,
    )


def test_capacity_share_is_the_part_of_an_even_rank_that_one_copy_takes():
    # 8 experts on 4 ranks, 1600 assignments: an even rank has 400.
    counts = np.array([300, 100, 200, 200, 200, 200, 200, 200])
    ranked = _rank(counts, _blocks(4, 8), [0])
    assert ranked.capacity_share.tolist() == [0.75]
    assert ranked.is_harmful.tolist() == [True]


def test_copies_share_the_harm():
    counts = np.array([300, 100, 200, 200, 200, 200, 200, 200])
    replicas = _blocks(4, 8)
    replicas[3, 0, 0] = 1
    ranked = _rank(counts, replicas, [0])
    assert ranked.replicas.tolist() == [2]
    assert ranked.capacity_share.tolist() == [0.375]
    assert ranked.is_harmful.tolist() == [False]


def test_relief_is_what_the_busiest_rank_would_lose():
    # Ranks: 1000, 300, 300, 400 of an even 500. Without expert 0 the busiest is the last one.
    counts = np.array([900, 100, 150, 150, 150, 150, 200, 200])
    ranked = _rank(counts, _blocks(4, 8), [0])
    assert ranked.relief.tolist() == pytest.approx([(1000 - 400) / 500])


def test_expert_that_is_not_on_the_busiest_rank_gives_no_relief():
    counts = np.array([500, 500, 600, 10, 100, 100, 100, 100])
    assert _rank(counts, _blocks(4, 8), [2]).relief.tolist() == [0]


def test_bystander_on_the_busiest_rank_of_an_imbalanced_layer_is_not_its_cause():
    counts = np.full(64, 100)
    counts[0], counts[1] = 10_000, 450
    ranked = _rank(counts, _blocks(8, 64), [0, 1])
    assert ranked.expert.tolist() == [0, 1]
    assert ranked.is_harmful.tolist() == [True, False]
    assert ranked.relief[1] > 0


def test_most_harmful_come_first():
    counts = np.array([300, 100, 390, 10, 250, 150, 200, 200])
    ranked = _rank(counts, _blocks(4, 8), [0, 2, 4])
    assert ranked.expert.tolist() == [2, 0, 4]
    assert [one.expert for one in ranked.top(2)] == [2, 0]
    assert ranked.top(1)[0].layer == 41
    assert ranked.num_harmful == 3


def test_multiple_of_the_median_survives_a_median_of_zero():
    assert times_median(np.array([[0, 0, 0, 8], [0, 0, 0, 0], [2, 4, 8, 4]])).tolist() == [
        [0, 0, 0, 4],
        [0, 0, 0, 0],
        [0.5, 1, 2, 1],
    ]
