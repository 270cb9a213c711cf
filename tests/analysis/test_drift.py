"""Drift: a router that does not change never drifts, and one that does shows how much."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from moescope.analysis.clustering import estimate_design_effect, sum_intervals
from moescope.analysis.drift import measure_drift

NUM_EXPERTS = 896
EVEN = np.array([1.0])


def _simulate(seed, earlier_rates, later_rates, *, cluster=1, intervals=7):
    """Drift between tokens that choose by ``rates [layers, experts]`` in clusters, with D estimated."""
    rng = np.random.default_rng(seed)
    first, second = (
        cluster * rng.poisson(rates / cluster / intervals, (intervals, *rates.shape))
        for rates in (earlier_rates, later_rates)
    )
    both = np.concatenate([first, second])
    effect = estimate_design_effect(both.sum(axis=0), sum_intervals(both))
    return measure_drift(first.sum(axis=0), second.sum(axis=0), effect)


@pytest.mark.parametrize("cluster", [1, 8, 30])
@pytest.mark.parametrize("mean", [1, 5, 20, 100])
def test_uniform_router_never_drifts(mean, cluster):
    rates = np.full((197, NUM_EXPERTS), float(mean))
    drift = _simulate([mean, cluster], rates, rates, cluster=cluster)
    assert not drift.is_significant.any()
    assert (drift.p_value < 0.05).mean() < 0.1
    assert not drift.net_variation.any()


def test_skewed_router_that_keeps_its_rates_does_not_drift():
    rates = 20 * np.random.default_rng(13).lognormal(0, 1, (97, NUM_EXPERTS))
    assert not _simulate(13, rates, 3 * rates).is_significant.any()


def test_undivided_statistic_would_find_drift_in_every_clustered_router():
    rates = np.full((23, NUM_EXPERTS), 100.0)
    drift = _simulate(79, rates, rates, cluster=8)
    effect = 8.0
    assert (drift.statistic * effect > 2 * drift.degrees).all()


@pytest.mark.parametrize(("mean", "cluster"), [(20, 1), (100, 8), (300, 30)])
def test_router_that_changed_its_mind_has_drifted(mean, cluster):
    rng = np.random.default_rng([mean, cluster])
    before, after = (mean * rng.lognormal(0, 0.5, (47, NUM_EXPERTS)) for _ in range(2))
    drift = _simulate(mean, before, after, cluster=cluster)
    shares = [rates / rates.sum(axis=1, keepdims=True) for rates in (before, after)]
    truth = 0.5 * np.abs(shares[0] - shares[1]).sum(axis=1)
    assert drift.is_significant.all()
    assert (drift.net_variation > 0.3 * truth).all()
    assert (drift.net_variation < truth).all()


def test_total_variation_is_the_share_that_moved():
    drift = measure_drift(np.array([[3000, 1000, 0]]), np.array([[600, 200, 800]]), EVEN)
    assert drift.total_variation.tolist() == [0.5]
    assert drift.degrees.tolist() == [2]
    assert drift.is_significant.tolist() == [True]


def test_floor_is_that_of_the_notes_for_even_counts():
    counts = np.full((1, NUM_EXPERTS), 10)
    expected = 0.5 * np.sqrt(2 / np.pi) * np.sqrt(NUM_EXPERTS * 2 / (10 * NUM_EXPERTS))
    assert measure_drift(counts, counts, EVEN).floor[0] == pytest.approx(expected)
    assert expected == pytest.approx(0.178, abs=1e-3)


def test_statistic_of_known_counts():
    # n1 + n2 = 30 and 20 of N1 = N2: (10 - 20)²/30 + (15 - 5)²/20.
    drift = measure_drift(np.array([[10, 15]]), np.array([[20, 5]]), np.array([2.0]))
    np.testing.assert_allclose(drift.statistic, [(25 / 25) * (100 / 30 + 100 / 20) / 2])


def test_window_without_tokens_has_not_drifted():
    drift = measure_drift(np.array([[0, 0], [7, 9]]), np.array([[79, 13], [0, 0]]), np.ones(2))
    assert np.isnan(drift.p_value).all()
    assert np.isnan(drift.total_variation).all()
    assert not drift.is_significant.any()


def test_layer_whose_clustering_is_unknown_has_no_verdict():
    drift = measure_drift(np.array([[7919, 13]]), np.array([[13, 7919]]), np.array([np.nan]))
    assert not drift.is_significant.any()
    assert drift.total_variation[0] > 0.9


def test_layer_that_uses_one_expert_only_cannot_drift():
    assert measure_drift(np.array([[79, 0]]), np.array([[13, 0]]), EVEN).p_value.tolist() == [1.0]


COUNTS = hnp.arrays(np.int64, (2, 2, 7), elements=st.integers(0, 10**6))


@given(COUNTS)
def test_order_of_the_windows_does_not_matter(counts):
    there, back = measure_drift(counts[0], counts[1], np.ones(2)), measure_drift(*counts[::-1], np.ones(2))
    np.testing.assert_allclose(there.statistic, back.statistic)
    np.testing.assert_allclose(there.total_variation, back.total_variation)


@given(COUNTS, st.floats(1, 100))
def test_variation_stays_within_its_bounds(counts, effect):
    drift = measure_drift(counts[0], counts[1], np.full(2, effect))
    known = ~np.isnan(drift.total_variation)
    assert (drift.total_variation[known] >= 0).all()
    assert (drift.total_variation[known] <= 1 + 1e-9).all()
    assert (drift.net_variation[known] <= drift.total_variation[known]).all()
