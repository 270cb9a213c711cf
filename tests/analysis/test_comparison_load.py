"""Where the load of two windows differs beyond noise."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moescope.analysis.assessment import assess_load
from moescope.analysis.comparison_load import compare_loads, find_expert_shifts
from moescope.schemas.attributes import Phase
from moescope.schemas.settings import Settings
from tests.analysis.known_workloads import KnownFleet, assess_fleet

CALM = KnownFleet(num_layers=5, num_experts=79, num_ranks=13, sigma=0.3, minutes=13)
HOT = {(Phase.DECODE, 3, 23): 30.0}


def _assess(**changes):
    return assess_fleet(dataclasses.replace(CALM, **changes), Phase.DECODE)


def _compare(a, b):
    return compare_loads(a, b, Settings())


def test_window_against_itself_differs_nowhere():
    load = _compare(_assess(), _assess())
    assert not load.drift.is_significant.any()
    assert not len(load.experts)
    assert not load.balance.is_beyond_noise.any()
    assert not load.ranks.is_beyond_noise.any()
    assert load.moved_copies == 0


def test_expert_that_became_hot_is_found_with_its_layer_and_rank():
    load = _compare(_assess(hot=HOT), _assess())
    assert (load.experts.layers[0], load.experts.experts[0]) == (3, 23)
    assert load.experts.times[0] > 10
    assert load.layers[load.drift.is_significant].tolist() == [3]
    assert load.balance.labels[load.balance.is_beyond_noise].tolist() == [3]
    assert load.balance.num_higher == 1
    assert load.balance.num_lower == 0
    busiest = load.ranks.labels[load.ranks.difference.argmax()]
    assert busiest == 23 * 13 // 79
    assert load.ranks.is_beyond_noise[busiest]


def test_other_way_round_it_became_cold():
    load = _compare(_assess(), _assess(hot=HOT))
    assert load.experts.times[0] < 0.1
    assert load.balance.num_lower == 1


def test_windows_of_different_length_compare_by_share():
    load = _compare(_assess(), _assess(minutes=3))
    assert not len(load.experts)
    assert not load.drift.is_significant.any()


def test_two_samples_of_one_router_differ_nowhere():
    rng = np.random.default_rng(79)
    shares = rng.dirichlet(np.full(79, 3.0), 23)
    effect = np.ones(23)
    for _ in range(13):
        a, b = (np.stack([rng.multinomial(7_919, share) for share in shares]) for _ in range(2))
        assert not len(find_expert_shifts(a, b, effect, np.arange(23)))


def test_rare_experts_need_more_than_a_few_counts():
    a, b = np.array([[7, 7_919]]), np.array([[0, 7_919]])
    assert not len(find_expert_shifts(a, b, np.ones(1), np.arange(1)))
    a[0, 0] = 79
    found = find_expert_shifts(a, b, np.ones(1), np.arange(1))
    assert found.experts.tolist() == [0]
    assert np.isinf(found.times[0])


def test_clustered_counts_are_less_evidence():
    a, b = np.array([[130, 7_000]]), np.array([[70, 7_000]])
    assert len(find_expert_shifts(a, b, np.ones(1), np.arange(1)))
    assert not len(find_expert_shifts(a, b, np.full(1, 7.0), np.arange(1)))
    assert not len(find_expert_shifts(a, b, np.full(1, np.nan), np.arange(1)))


@given(st.integers(0, 2**32 - 1), st.integers(2, 13))
def test_shares_of_shifts_are_those_of_the_windows(seed, experts):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 7_919, (2, 3, experts))
    found = find_expert_shifts(a, b, np.ones(3), np.array([1, 5, 7]))
    row = np.searchsorted([1, 5, 7], found.layers)
    np.testing.assert_allclose(found.share_of_a, (a / a.sum(axis=1, keepdims=True))[row, found.experts])
    gaps = np.abs(found.share_of_a - found.share_of_b)
    assert (np.diff(gaps) <= 1e-12).all()


def test_other_numbers_of_experts_cannot_be_compared():
    assert _compare(_assess(), _assess(num_experts=64)) is None


def test_layers_that_only_one_has_are_left_out():
    load = _compare(_assess(), _assess(first_layer=3))
    assert load.layers.tolist() == [3, 4, 5]


def test_other_ranks_leave_the_balance_alone():
    load = _compare(_assess(), _assess(num_ranks=7))
    assert load.ranks is None
    assert load.moved_copies is None
    assert load.balance is not None


def test_copies_that_moved_are_counted():
    a, b = _assess(), _assess()
    replicas = b.placement.replicas.copy()
    replicas[[0, 12], 1] = replicas[[12, 0], 1]
    moved = dataclasses.replace(b.placement, replicas=replicas)
    load = _compare(a, assess_load(b.window, moved, Settings()))
    held = a.placement.replicas[0, 1].sum() + a.placement.replicas[12, 1].sum()
    assert load.moved_copies == held


def test_without_a_placement_experts_are_compared_and_ranks_are_not():
    a = _assess()
    load = _compare(a, assess_load(a.window, None, Settings()))
    assert (load.balance, load.ranks, load.moved_copies) == (None, None, None)
    assert load.experts.compared == 5 * 79


@pytest.mark.parametrize("window", ["a", "b"])
def test_window_without_tokens_differs_nowhere(window):
    sides = {"a": _assess(), "b": _assess()}
    sides[window] = _assess(tokens_per_minute=0)
    load = _compare(sides["a"], sides["b"])
    assert not len(load.experts)
    assert load.ranks is None
