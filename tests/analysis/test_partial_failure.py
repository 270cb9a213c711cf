"""What one slow rank does to passes and requests: known small cases."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moescope.analysis.partial_failure import (
    PassTimes,
    chance_of_need,
    mean_of_slowest,
    slow_down,
    slow_requests,
)
from moescope.analysis.partial_failure_times import activated_experts, reach_of_ranks
from moescope.schemas.errors import ShapeError

LAYERS, RANKS = 5, 4
EXCHANGE, EXPERTS, DENSE = 13e-6, 79e-6, 23e-6


def pass_times(*, reach: float = 1.0, layers: int = LAYERS, **changes) -> PassTimes:
    """Passes whose parts are known: every layer is dense part, exchange, experts, exchange."""
    step = layers * (DENSE + EXPERTS + 2 * EXCHANGE)
    known = PassTimes(
        np.full(RANKS, step),
        np.full(RANKS, 7.0),
        np.full((layers, RANKS), EXPERTS),
        EXCHANGE,
        np.full((layers, RANKS), reach),
        layers,
        np.full(RANKS, 0.25),
    )
    return dataclasses.replace(known, **changes)


def test_everybody_waits_for_a_rank_that_every_token_needs():
    slow = slow_down(pass_times(), 2, 3.0)

    expected = (3 * DENSE + 3 * EXPERTS + 2 * EXCHANGE) / (DENSE + EXPERTS + 2 * EXCHANGE)
    np.testing.assert_allclose(slow.ratio, expected)
    assert slow.lock_step_ratio == pytest.approx(expected)
    assert slow.touching_share == slow.touching_any_share == 1


def test_nobody_but_itself_waits_for_a_rank_that_no_token_needs():
    reach = np.ones((LAYERS, RANKS))
    reach[:, 2] = 0
    slow = slow_down(pass_times(), 2, 3.0)
    apart = slow_down(dataclasses.replace(pass_times(), reach=reach), 2, 3.0)

    np.testing.assert_allclose(apart.ratio[[0, 1, 3]], 1)
    own = (3 * DENSE + EXPERTS + 2 * EXCHANGE) / (DENSE + EXPERTS + 2 * EXCHANGE)
    assert apart.ratio[2] == pytest.approx(own), "its own attention is slow, and experts of others are not"
    assert apart.touching_share == 0
    assert slow.ratio[0] > apart.ratio[0]


def test_the_larger_the_batch_the_surer_it_needs_the_rank():
    reach = np.full((1, 1), 0.1)
    needs = chance_of_need(reach, np.array([1.0, 7.0, 1000.0]))[:, 0, 0]

    np.testing.assert_allclose(needs, [0.1, 1 - 0.9**7, 1])


def test_mean_of_the_slowest_weighs_who_is_there():
    values = np.array([3.0, 10.0, 5.0])

    assert mean_of_slowest(values, np.ones(3)) == 10
    assert mean_of_slowest(values, np.zeros(3)) == 0
    assert mean_of_slowest(values, np.array([1.0, 0.5, 0.5])) == pytest.approx(0.5 * 10 + 0.25 * 5 + 0.25 * 3)


def test_batches_that_grow_make_a_slow_rank_worse():
    grows = np.array([[1.0, 64.0], [1.0, 64.0]])
    at_once = slow_down(pass_times(), 2, 1.5)
    settled = slow_down(pass_times(activated=grows), 2, 1.5)

    np.testing.assert_allclose(settled.at_once, at_once.ratio)
    assert (settled.ratio > at_once.ratio).all()


def test_batches_that_activate_all_experts_already_change_nothing_more():
    full = np.array([[1.0, 64.0], [1.0, 1.0]])
    settled = slow_down(pass_times(activated=full), 2, 1.5)

    np.testing.assert_allclose(settled.ratio, settled.at_once)


@given(st.floats(1, 20), st.integers(0, RANKS - 1), st.floats(0, 1), st.integers(0, 79))
def test_slower_never_makes_a_pass_shorter_and_1_changes_nothing(times, rank, reach, seed):
    rng = np.random.default_rng(seed)
    known = pass_times(
        reach=reach,
        expert_seconds=rng.gamma(2, EXPERTS / 2, (LAYERS, RANKS)),
        step_seconds=rng.gamma(9, LAYERS * 1e-4, RANKS),
    )
    slow, as_it_is = slow_down(known, rank, times), slow_down(known, rank, 1.0)

    assert slow.ratio.min() >= 1 - 1e-9
    assert slow.ratio.max() <= max(times, slow.lock_step_ratio) + 1e-9
    np.testing.assert_allclose(as_it_is.ratio, 1)


def test_rank_or_factor_that_makes_no_sense_is_refused():
    with pytest.raises(ShapeError, match="0 … 3"):
        slow_down(pass_times(), 4, 2.0)
    with pytest.raises(ShapeError, match="is not slower"):
        slow_down(pass_times(), 1, 0.5)


def test_requests_feel_passes_prefill_and_the_queue():
    prefill, decode = pass_times(), pass_times(busy_share=np.full(RANKS, 0.5))
    pair = (prefill, slow_down(prefill, 2, 2.0)), (decode, slow_down(decode, 2, 2.0))
    ratio = pair[0][1].ratio
    felt = slow_requests(*pair, ttft_seconds=0.3, queue_seconds=0.1)

    after = 0.25 * ratio
    np.testing.assert_allclose(felt.tpot_ratio, ratio * 0.75 / (1 - after))
    queue = 0.1 * ratio**2 * 0.75 / (1 - after)
    np.testing.assert_allclose(felt.ttft_ratio, (queue + 0.2 * ratio) / 0.3)


def test_prompts_that_come_faster_than_they_can_be_computed_have_no_end():
    prefill = pass_times(busy_share=np.full(RANKS, 0.6))
    felt = slow_requests(
        (prefill, slow_down(prefill, 2, 3.0)),
        (prefill, slow_down(prefill, 2, 3.0)),
        ttft_seconds=0.3,
        queue_seconds=0.1,
    )

    assert np.isinf(felt.ttft_ratio).all()
    assert np.isinf(felt.tpot_ratio).all()


def test_group_that_only_decodes_says_nothing_of_ttft():
    decode = pass_times()
    felt = slow_requests(None, (decode, slow_down(decode, 2, 2.0)), ttft_seconds=np.nan, queue_seconds=np.nan)

    assert np.isnan(felt.ttft_ratio).all()
    assert (felt.tpot_ratio > 1).all()


def test_reach_of_a_rank_counts_its_part_of_the_copies():
    tokens = np.array([[60, 30, 10]])
    replicas = np.array([[[1, 0, 0]], [[1, 1, 1]]])

    reach = reach_of_ranks(tokens, replicas, 1)
    assert reach[0, 0] == pytest.approx(0.3)
    assert reach[0, 1] == pytest.approx(1 - 0.7 * 0.7 * 0.9)


def test_a_batch_activates_each_copy_by_its_chance():
    tokens, replicas = np.array([[50, 50]]), np.array([[[1, 1]], [[1, 0]]])

    assert activated_experts(tokens, replicas, 1, 4) == pytest.approx(2 * (1 - np.exp(-1)) + 1 - np.exp(-2))
    assert activated_experts(tokens, replicas, 1, 1e9) == pytest.approx(3)
