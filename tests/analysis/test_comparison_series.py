"""Whether a number of one window is beyond the noise of the other."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from moescope.analysis.comparison_series import FALSE_ALARMS, Change, choose_limit, compare_series

FLOATS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=23)
INTEGERS = st.lists(st.integers(-1000, 1000), min_size=1, max_size=23)


def _judge(a, b, limit=FALSE_ALARMS):
    return compare_series(np.array(a, dtype=np.float64), np.array(b, dtype=np.float64)).judge(limit)


def test_fifteen_minutes_all_above_fifteen_others_are_higher():
    rng = np.random.default_rng(79)
    assert _judge(2 + rng.random(15), rng.random(15)) is Change.HIGHER
    assert _judge(rng.random(15), 2 + rng.random(15)) is Change.LOWER


def test_five_minutes_can_tell_nothing():
    assert _judge([7, 7.1, 7.2, 7.1, 7], [1, 1.1, 1, 1.2, 1]) is Change.TOO_LITTLE_DATA


def test_same_numbers_are_within_noise():
    assert _judge([0.3] * 13, [0.3] * 13) is Change.WITHIN_NOISE
    assert _judge([0.1 + 0.2] * 13, [0.3] * 13) is Change.WITHIN_NOISE


def test_one_odd_minute_moves_nothing():
    steady = [1.0, 1.1] * 7
    assert _judge([*steady, 79.0], [*steady, 1.0]) is Change.WITHIN_NOISE


@pytest.mark.parametrize(("a", "b"), [([], [1.0]), ([math.nan, math.nan], [1.0, 2.0])])
def test_window_without_a_value_tells_nothing(a, b):
    assert _judge(a, b) is Change.TOO_LITTLE_DATA


def test_steps_without_a_value_are_left_out():
    rng = np.random.default_rng(13)
    a, b = 2 + rng.random(15), rng.random(15)
    with_gaps = np.insert(a, 7, [np.nan] * 3)
    assert compare_series(with_gaps, b) == compare_series(a, b)


@pytest.mark.parametrize(("alike", "most"), [(0.0, 0.02), (0.3, 0.03), (0.5, 0.06)])
def test_false_alarms_stay_rare_where_minutes_resemble_their_neighbours(alike, most):
    rng = np.random.default_rng(23)
    noise = rng.standard_normal((2, 500, 40))
    for step in range(1, 40):
        noise[..., step] = alike * noise[..., step - 1] + math.sqrt(1 - alike**2) * noise[..., step]
    found = [_judge(a, b).is_beyond_noise for a, b in zip(*noise[..., 25:], strict=True)]
    assert np.mean(found) <= most


def test_shift_of_twice_the_scatter_is_found():
    rng = np.random.default_rng(7)
    found = [_judge(2 + rng.standard_normal(15), rng.standard_normal(15)) for _ in range(100)]
    assert found.count(Change.HIGHER) >= 90


@given(FLOATS, FLOATS)
def test_swapping_the_windows_swaps_the_verdict(a, b):
    swapped = {Change.HIGHER: Change.LOWER, Change.LOWER: Change.HIGHER}
    assert _judge(a, b) is swapped.get(_judge(b, a), _judge(b, a))


@given(INTEGERS, INTEGERS)
@example([1], [0, 2])
def test_no_p_value_without_ties_is_below_the_least_that_was_possible(a, b):
    test = compare_series(np.array(a), np.array(b))
    assert 0 <= test.p_value <= 1
    if len({*a, *b}) == len(a) + len(b):
        assert test.p_value >= test.least_p_value * (1 - 1e-9) or test.p_value == pytest.approx(1)


def test_numbers_alike_to_nine_digits_are_ties():
    told, alike = (
        compare_series(np.array([1.0]), np.array([0.0, 1e-12])),
        compare_series(np.array([1.0]), np.zeros(2)),
    )
    assert told == alike


@pytest.mark.parametrize(
    ("p_values", "limit"),
    [
        ([0.004, 0.009], 0.009),
        ([0.006, 0.02], -1.0),
        ([0.002, 0.004, 0.3, math.nan], 0.004),
        ([], -1.0),
        ([math.nan], -1.0),
    ],
)
def test_limit_is_that_of_benjamini_and_hochberg(p_values, limit):
    assert choose_limit(p_values) == limit
