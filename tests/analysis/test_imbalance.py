"""Imbalance: the ratio, its floor, and a verdict that uniform routing never alarms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from moescope.analysis.imbalance import (
    Verdict,
    compute_rank_loads,
    estimate_noise_floor,
    judge_imbalance,
    subtract_noise_floor,
)


def _judge(loads, effect=1.0, **changes):
    loads = np.asarray(loads, dtype=float)
    limits = {"acceptable_ratio": 2.0, "min_mean_load": 30.0} | changes
    return judge_imbalance(loads, np.full(len(loads), effect), **limits)


def _blocks(ranks, layers, experts):
    held = np.arange(experts) * ranks // experts == np.arange(ranks)[:, None]
    return np.repeat(held[:, None, :], layers, axis=1).astype(np.uint16)


def test_rank_loads_are_the_sums_of_the_experts_on_the_ranks():
    loads = compute_rank_loads(np.array([[13, 23, 79, 7]]), _blocks(2, 1, 4))
    assert loads.tolist() == [[36, 86]]


def test_load_of_an_expert_is_split_over_its_copies():
    replicas = np.array([[[1, 0]], [[1, 1]], [[2, 0]]])
    loads = compute_rank_loads(np.array([[80, 7]]), replicas)
    assert loads.tolist() == [[20, 27, 40]]


def test_expert_without_a_copy_adds_nothing():
    assert compute_rank_loads(np.array([[13, 23]]), np.array([[[1, 0]]])).tolist() == [[13]]


def test_no_layers_have_no_loads():
    loads = compute_rank_loads(np.zeros((0, 23), np.uint64), np.ones((13, 0, 23), np.uint16))

    assert loads.shape == (0, 13)


def test_ratio_is_max_over_mean_and_balancedness_its_inverse():
    judged = _judge([[100, 200, 300, 1000]])
    assert judged.ratio.tolist() == [2.5]
    assert judged.balancedness.tolist() == [0.4]
    assert judged.hottest_rank.tolist() == [3]


def test_layer_without_tokens_has_no_ratio():
    judged = _judge([[0, 0, 0], [79, 79, 79]])
    assert np.isnan(judged.ratio[0])
    assert np.isnan(judged.balancedness[0])
    assert judged.verdicts == (Verdict.TOO_LITTLE_DATA, Verdict.OK)


def test_group_of_one_rank_is_always_balanced():
    judged = _judge([[7919]])
    assert judged.ratio.tolist() == [1]
    assert judged.net_ratio.tolist() == [1]
    assert judged.verdicts == (Verdict.OK,)


@pytest.mark.parametrize(
    ("tokens_per_step", "measured"),
    [(64, 1.59), (256, 1.27), (1024, 1.15), (4096, 1.07), (16384, 1.035)],
)
def test_noise_floor_is_near_what_uniform_routing_measures(tokens_per_step, measured):
    mean = tokens_per_step * 16 / 64
    floor = estimate_noise_floor(np.array([mean]), 64, np.array([1.0]))[0]
    assert floor - 1 == pytest.approx(measured - 1, rel=0.35)


def test_floor_of_clustered_tokens_is_that_of_fewer_tokens():
    clustered = estimate_noise_floor(np.array([800.0]), 64, np.array([8.0]))
    independent = estimate_noise_floor(np.array([100.0]), 64, np.array([1.0]))
    np.testing.assert_allclose(clustered, independent)


def test_ratio_at_its_floor_is_nothing_but_noise():
    np.testing.assert_allclose(subtract_noise_floor(np.array([1.27, 1.1]), np.array([1.27, 1.27])), [1, 1])


@given(
    ratio=st.floats(1, 100),
    floor=st.floats(1, 10),
)
def test_net_ratio_lies_between_even_and_what_was_measured(ratio, floor):
    net = float(subtract_noise_floor(np.array([ratio]), np.array([floor]))[0])
    assert 1 <= net <= ratio + 1e-9


def test_exactly_the_acceptable_ratio_is_acceptable_and_a_little_more_is_not():
    # 1e9 assignments a rank: the floor is 1.0001, the net ratio of an exact 2 just below it.
    even = 1e9
    assert _judge([[0.5 * even, 0.5 * even, even, 2 * even]]).verdicts == (Verdict.OK,)
    assert _judge([[0.5 * even, 0.5 * even, even, 2.1 * even]]).verdicts == (Verdict.IMBALANCED,)


@pytest.mark.parametrize("ranks", [8, 64, 128])
@pytest.mark.parametrize("mean", [30, 79, 300])
@pytest.mark.parametrize("cluster", [1, 8])
def test_uniform_routing_is_never_imbalanced(ranks, mean, cluster):
    rng = np.random.default_rng([ranks, mean, cluster])
    loads = cluster * rng.poisson(mean, (1999, ranks))
    judged = _judge(loads, effect=float(cluster))
    assert not judged.is_imbalanced.any()


@pytest.mark.parametrize("mean", [79, 300, 7919])
def test_a_rank_with_well_over_twice_the_mean_is_always_imbalanced(mean):
    rng = np.random.default_rng(mean)
    expected = np.full(64, float(mean))
    expected[23] *= 2.9
    judged = _judge(rng.poisson(expected, (499, 64)))
    assert judged.is_imbalanced.all()
    assert set(judged.hottest_rank.tolist()) == {23}


def test_there_is_no_verdict_below_the_least_mean_load():
    loads = [[0, 0, 0, 116], [0, 0, 0, 120]]
    assert _judge(loads).verdicts == (Verdict.TOO_LITTLE_DATA, Verdict.IMBALANCED)


def test_least_mean_load_counts_independent_tokens():
    loads = [[0, 0, 0, 800]]
    assert _judge(loads, effect=8.0).verdicts == (Verdict.TOO_LITTLE_DATA,)


@given(
    hnp.arrays(np.int64, (3, 7), elements=st.integers(0, 10**9)),
    st.integers(1, 7),
)
def test_rank_loads_keep_the_sum_of_the_assignments(tokens, ranks):
    loads = compute_rank_loads(tokens, _blocks(ranks, 3, 7))
    np.testing.assert_allclose(loads.sum(axis=1), tokens.sum(axis=1))


@given(hnp.arrays(np.int64, (2, 5), elements=st.integers(1, 10**6)), st.permutations(range(5)))
def test_order_of_the_ranks_does_not_matter(loads, order):
    assert _judge(loads).verdicts == _judge(loads[:, order]).verdicts
