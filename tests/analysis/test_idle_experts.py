"""Cold and dead experts: never on thin data, and found where there is enough."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from moescope.analysis.clustering import estimate_design_effect, sum_intervals
from moescope.analysis.idle_experts import find_idle_experts

RULE = {"cold_ratio": 0.25, "dead_ratio": 0.05, "confidence": 0.99}
NUM_EXPERTS = 896


def _find(counts, effect=1.0):
    counts = np.atleast_2d(counts)
    return find_idle_experts(counts, np.full(len(counts), float(effect)), **RULE)


def _simulate(seed, rates, *, cluster=1, intervals=7):
    """Idle experts of tokens that choose by ``rates [layers, experts]`` in clusters, with D estimated."""
    rng = np.random.default_rng(seed)
    counts = cluster * rng.poisson(rates / cluster / intervals, (intervals, *rates.shape))
    total = counts.sum(axis=0)
    return find_idle_experts(total, estimate_design_effect(total, sum_intervals(counts)), **RULE)


@pytest.mark.parametrize("cluster", [1, 8, 30])
@pytest.mark.parametrize("mean", [1, 5, 20, 100])
def test_uniform_router_has_no_idle_experts(mean, cluster):
    idle = _simulate([mean, cluster], np.full((97, NUM_EXPERTS), float(mean)), cluster=cluster)
    assert (idle.num_dead, idle.num_cold) == (0, 0)


def test_naive_rule_would_call_a_third_of_a_uniform_router_dead():
    counts = np.random.default_rng(1).poisson(1.0, (13, NUM_EXPERTS))
    assert (counts == 0).mean() == pytest.approx(1 / np.e, abs=0.01)
    assert _find(counts).num_dead == 0


@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.5])
@pytest.mark.parametrize(("mean", "cluster"), [(1, 1), (5, 1), (20, 1), (20, 8), (100, 8), (1000, 30)])
def test_skewed_router_has_no_dead_experts_and_few_that_are_called_cold_wrongly(sigma, mean, cluster):
    rng = np.random.default_rng([int(10 * sigma), mean, cluster])
    rates = mean * rng.lognormal(0, sigma, (47, NUM_EXPERTS))
    idle = _simulate(79, rates, cluster=cluster)
    of_median = rates / np.median(rates, axis=1, keepdims=True)
    assert idle.num_dead == 0
    assert (idle.is_cold & (of_median > 0.25)).sum() <= 0.1 * idle.num_cold + 0.1 * len(rates)
    assert not (idle.is_cold & (of_median > 0.6)).any()


@pytest.mark.parametrize(("mean", "cluster"), [(500, 1), (4000, 8), (15_000, 30)])
def test_planted_dead_and_cold_experts_are_found(mean, cluster):
    rates = np.full((23, NUM_EXPERTS), float(mean))
    rates[:, 347], rates[:, 13] = 0, 0.08 * mean
    idle = _simulate([mean, cluster], rates, cluster=cluster)
    assert np.argwhere(idle.is_dead).tolist() == [[layer, 347] for layer in range(23)]
    assert idle.is_cold[:, 13].mean() > 0.9
    assert idle.num_cold == idle.is_cold[:, 13].sum()


def test_dead_is_told_from_as_many_assignments_as_it_says():
    counts = np.full((2, NUM_EXPERTS), 228)
    counts[1] = 229
    counts[:, 347] = 0
    idle = _find(counts)
    assert idle.can_tell.tolist() == [False, True]
    assert idle.is_dead[:, 347].tolist() == [False, True]
    assert idle.assignments_to_tell.tolist() == pytest.approx([228.06] * 2, abs=0.01)


def test_clustered_assignments_count_for_fewer():
    counts = np.full(NUM_EXPERTS, 300)
    counts[347] = 0
    assert _find(counts).num_dead == 1
    assert _find(counts, effect=8.0).num_dead == 0


def test_layer_of_which_nothing_is_known_is_not_judged():
    idle = _find(np.zeros((2, 7), dtype=np.int64))
    unknown = _find(np.array([[0, 10**6, 10**6]]), effect=np.nan)
    assert idle.num_dead == idle.num_cold == unknown.num_dead == unknown.num_cold == 0
    assert not idle.can_tell.any()
    assert np.isnan(unknown.assignments_to_tell).all()


def test_layer_that_uses_few_of_its_experts_calls_none_of_them_dead():
    # Most experts unused: the median is zero, and there is nothing that the unused ones lie below.
    counts = np.zeros(NUM_EXPERTS, dtype=np.int64)
    counts[:13] = 10**6
    assert _find(counts).num_dead == 0


def test_copies_beyond_the_first_of_idle_experts_are_wasted():
    counts = np.full(64, 10_000)
    counts[7], counts[13] = 0, 100
    copies = np.ones((1, 64), dtype=np.uint16)
    copies[0, [7, 13, 23]] = 3, 2, 8
    assert _find(counts).wasted_copies(copies) == 3


@given(hnp.arrays(np.int64, (2, 11), elements=st.integers(0, 10**9)), st.floats(1, 100))
def test_dead_and_cold_are_apart_and_lie_below_the_median(counts, effect):
    idle = _find(counts, effect)
    assert not (idle.is_dead & idle.is_cold).any()
    assert not counts[idle.is_dead].any()
    assert not ((idle.is_dead | idle.is_cold) & (counts > np.median(counts, axis=1, keepdims=True))).any()
