"""Skew measures that do not take noise for skew."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from moescope.analysis.skew import (
    busiest_share,
    debiased_gini,
    effective_experts,
    effective_experts_by_entropy,
    measure_skew,
)

EVEN = np.array([1.0])


def _uniform(mean, layers=97):
    return np.random.default_rng(mean).poisson(mean, (layers, 896))


def test_busiest_fifth_of_five_equal_experts_gets_a_fifth():
    assert busiest_share(np.full((1, 5), 23)).tolist() == [0.2]


def test_busiest_fifth_of_a_layer_that_uses_one_expert_gets_everything():
    assert busiest_share(np.array([[0, 79, 0, 0, 0, 0, 0]])).tolist() == [1.0]


def test_gini_of_even_counts_is_zero_and_of_one_expert_nearly_one():
    even = debiased_gini(np.full((1, 100), 10**6), EVEN)
    single = np.zeros((1, 100), dtype=np.int64)
    single[0, 13] = 10**9
    assert even[0] == 0
    assert debiased_gini(single, EVEN)[0] == pytest.approx(0.99, abs=1e-3)


@pytest.mark.parametrize("mean", [10, 100])
def test_gini_of_a_uniform_router_is_noise_and_is_taken_out(mean):
    counts = _uniform(mean)
    ones = np.ones(len(counts))
    assert debiased_gini(counts, 0 * ones).mean() == pytest.approx(1 / np.sqrt(np.pi * mean), rel=0.05)
    assert debiased_gini(counts, ones).mean() < 0.4 / np.sqrt(np.pi * mean)


def test_effective_experts_of_a_uniform_router_are_all_of_them_even_at_one_token_each():
    counts = _uniform(1)
    ones = np.ones(len(counts))
    assert effective_experts(counts, ones).mean() == pytest.approx(896, rel=0.02)
    assert effective_experts_by_entropy(counts, ones).mean() == pytest.approx(690, rel=0.02)
    assert effective_experts_by_entropy(counts, 0 * ones).mean() == pytest.approx(504, rel=0.02)


def test_clustered_tokens_do_not_lower_the_effective_experts():
    counts = 8 * np.random.default_rng(8).poisson(5, (97, 896))
    effect = np.full(len(counts), 8.0)
    assert effective_experts(counts, effect).mean() == pytest.approx(896, rel=0.02)
    assert effective_experts(counts, effect / 8).mean() < 780


def test_half_the_experts_evenly_used_are_half_as_many_effective_ones():
    counts = np.concatenate([np.full(448, 10**6), np.zeros(448, dtype=np.int64)])[None]
    assert effective_experts(counts, EVEN)[0] == pytest.approx(448, rel=1e-3)
    assert effective_experts_by_entropy(counts, EVEN)[0] == pytest.approx(448, rel=1e-3)


def test_layer_without_tokens_has_no_skew():
    skew = measure_skew(np.zeros((1, 7), dtype=np.int64), np.array([np.nan]))
    assert np.isnan(skew.busiest_fifth_share[0])
    assert np.isnan(skew.gini[0])
    assert np.isnan(skew.effective_experts[0])


@given(hnp.arrays(np.int64, (1, 13), elements=st.integers(1, 10**6)))
def test_measures_stay_within_their_bounds(counts):
    skew = measure_skew(counts, EVEN)
    assert 3 / 13 - 1e-9 <= skew.busiest_fifth_share[0] <= 1
    assert 0 <= skew.gini[0] < 1
    assert 1 <= skew.effective_experts_entropy[0] <= 13
