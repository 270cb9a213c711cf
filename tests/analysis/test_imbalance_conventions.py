"""One balance, three formulas, two ways to aggregate: each as its engine computes it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from moescope.analysis.imbalance_conventions import compare_conventions

HOT_AND_EVEN = np.array([[400.0, 0.0, 0.0, 0.0], [25.0, 25.0, 25.0, 25.0], [25.0, 25.0, 25.0, 25.0]])


def test_vllm_divides_the_sums_and_sglang_averages_the_layers():
    found = compare_conventions(HOT_AND_EVEN)
    assert found.mean_ratio == pytest.approx((4 + 1 + 1) / 3)
    assert found.mean_excess == pytest.approx(1.0)
    assert found.vllm_balancedness == pytest.approx((100 + 25 + 25) / (400 + 25 + 25))
    assert found.sglang_balancedness == pytest.approx((1 / 4 + 1 + 1) / 3)


@pytest.mark.parametrize("tokens", [64, 256, 1024])
def test_single_pass_of_a_uniform_router_shows_what_was_measured(tokens):
    # 64 ranks, top-16: .61, .77, .87 by simulation of single steps.
    rng = np.random.default_rng(tokens)
    passes = rng.poisson(tokens * 16 / 64, (500, 64))
    truth = (passes.mean(axis=1) / passes.max(axis=1)).mean()
    found = compare_conventions(passes.sum(axis=0)[None].astype(float), 500)
    assert found.single_pass_balancedness == pytest.approx(truth, abs=0.05)
    assert found.sglang_balancedness > found.single_pass_balancedness


def test_layer_without_tokens_is_left_out():
    loads = np.concatenate([HOT_AND_EVEN, np.zeros((2, 4))])
    assert compare_conventions(loads, 7) == compare_conventions(HOT_AND_EVEN, 7)


def test_without_any_tokens_nothing_is_known():
    assert np.isnan(compare_conventions(np.zeros((3, 4))).mean_ratio)


@given(hnp.arrays(np.float64, (3, 5), elements=st.floats(1, 10**9)))
def test_all_agree_about_what_is_even(loads):
    found = compare_conventions(loads)
    assert 1 - 1e-9 <= found.mean_ratio <= 5 + 1e-9
    assert 1 / 5 - 1e-9 <= found.vllm_balancedness <= 1 + 1e-9
    # A mean of inverses is at least the inverse of the mean.
    assert found.sglang_balancedness >= 1 / found.mean_ratio - 1e-6
