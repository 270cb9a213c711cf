"""The design effect: scatter of clustered tokens, told apart from skew and from swings of the traffic."""

import numpy as np
import pytest

from moescope.analysis.clustering import (
    estimate_design_effect,
    estimate_effective_intervals,
    sum_intervals,
)


def _clustered(seed, *, cluster, mean, weights, layers=23, experts=896, sigma=0.0):
    """Counts ``[intervals, layers, experts]`` of tokens that choose alike in clusters of one size."""
    rng = np.random.default_rng(seed)
    rates = rng.lognormal(0, sigma, (layers, experts)) * mean
    shares = np.asarray(weights) / np.sum(weights)
    return cluster * rng.poisson(rates * shares[:, None, None] / cluster)


def _estimate(counts):
    return estimate_design_effect(counts.sum(axis=0), sum_intervals(counts))


def test_formula_of_the_design_on_a_case_small_enough_for_paper():
    # Two intervals, one layer, two experts: n = (10, 4), N = 14, A = 36+16+4 = 56, B = 116.
    counts = np.array([[[6, 2]], [[4, 2]]])
    sums = sum_intervals(counts)
    assert sums.squares.tolist() == [60.0]
    assert sums.total_squares.tolist() == [100.0]
    # T = 196/100 = 1.96, D = max(1, 1 + (60 - 14 - (116 - 60)/0.96)/14) = 1.
    assert estimate_effective_intervals(counts.sum(axis=0), sums).tolist() == [1.96]
    assert _estimate(counts).tolist() == [1.0]


def test_equal_intervals_give_the_textbook_formula():
    rng = np.random.default_rng(13)
    counts = 8 * rng.permuted(np.repeat([[1, 2, 3, 0, 5, 7, 0, 1]], 4, axis=0), axis=1)[:, None, :]
    n = counts.sum(axis=(0, 1)).astype(float)
    a, b, total, intervals = (counts.astype(float) ** 2).sum(), (n**2).sum(), n.sum(), 4
    expected = max(1, 1 + (a - total - (b - a) / (intervals - 1)) / total)
    np.testing.assert_allclose(_estimate(counts), [expected])


@pytest.mark.parametrize("cluster", [1, 8, 30])
@pytest.mark.parametrize("mean", [1, 5, 100])
def test_simulated_clusters_are_found_at_any_count(cluster, mean):
    estimated = _estimate(_clustered(79, cluster=cluster, mean=mean, weights=np.ones(15)))
    assert estimated.mean() == pytest.approx(cluster, rel=0.05)


def test_skewed_rates_are_no_clustering():
    estimated = _estimate(_clustered(79, cluster=1, mean=50, weights=np.ones(15), sigma=1.0))
    assert estimated.mean() == pytest.approx(1, abs=0.05)


def test_traffic_that_swings_and_a_half_minute_at_the_end_are_no_clustering():
    weights = [1, 3, 2, 0.5, 4, 1, 2, 0.1]
    estimated = _estimate(_clustered(79, cluster=1, mean=300, weights=weights, sigma=0.5))
    assert estimated.mean() == pytest.approx(1, abs=0.1)


def test_one_interval_says_nothing():
    assert np.isnan(_estimate(np.full((1, 3, 7), 13))).all()


def test_nearly_everything_in_one_interval_says_nothing():
    assert np.isnan(_estimate(np.stack([np.full((3, 7), 1000), np.full((3, 7), 1)]))).all()


def test_layer_without_tokens_has_no_design_effect():
    counts = np.ones((5, 2, 7), dtype=np.int64)
    counts[:, 1] = 0
    estimated = _estimate(counts)
    assert estimated[0] == 1
    assert np.isnan(estimated[1])
