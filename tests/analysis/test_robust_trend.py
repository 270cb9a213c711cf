"""A line through a series: the planted slope lies in its interval, and noise alone is no trend."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moescope.analysis.robust_trend import MIN_POINTS, fit_trend

SECONDS = np.arange(79) * 10.0


def _autoregressive(rng, alike: float, size: int = 79) -> np.ndarray:
    values = np.zeros(size)
    for at in range(1, size):
        values[at] = alike * values[at - 1] + rng.normal()
    return values


def test_line_without_noise_is_found_exactly():
    trend = fit_trend(SECONDS, 13 + 0.23 * SECONDS)
    assert (trend.slope, trend.level, trend.scatter) == pytest.approx((0.23, 13 + 0.23 * 780, 0), abs=1e-9)
    assert trend.growth == pytest.approx(0.23 * 780)
    assert trend.p_value < 1e-9


def test_a_few_wild_values_do_not_move_the_line():
    values = 13 + 0.23 * SECONDS
    values[[7, 23, 61]] = 1e6
    assert fit_trend(SECONDS, values).slope == pytest.approx(0.23, rel=1e-3)


@pytest.mark.parametrize("alike", [0.0, 0.5])
def test_planted_slope_lies_in_the_interval_nearly_always(alike: float):
    rng = np.random.default_rng(79)
    slope, inside = 0.01, 0
    for _ in range(100):
        trend = fit_trend(SECONDS, slope * SECONDS + _autoregressive(rng, alike), confidence=0.95)
        inside += trend.slope_low <= slope <= trend.slope_high
    assert inside >= 88


@pytest.mark.parametrize("alike", [0.0, 0.5, 0.8])
def test_noise_is_called_a_trend_no_more_often_than_the_p_value_says(alike: float):
    rng = np.random.default_rng(13)
    below = sum(fit_trend(SECONDS, _autoregressive(rng, alike)).p_value < 0.05 for _ in range(200))
    assert below <= 200 * 0.09


def test_constant_series_has_no_trend():
    trend = fit_trend(SECONDS, np.full(79, 23.0))
    assert (trend.slope, trend.scatter, trend.p_value) == (0, 0, 1)


def test_too_short_a_series_is_refused():
    with pytest.raises(ValueError, match="8 points, not 7"):
        fit_trend(SECONDS[: MIN_POINTS - 1], SECONDS[: MIN_POINTS - 1])


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 79), min_size=MIN_POINTS, max_size=23),
    st.sampled_from([0.5, 2.0, 8.0]),
    st.integers(-7, 7),
)
def test_slope_follows_scale_and_shift(values: list[int], scale: float, shift: int):
    seconds = np.arange(len(values)) * 10.0
    plain = fit_trend(seconds, np.array(values, dtype=float))
    other = fit_trend(seconds, shift + scale * np.array(values, dtype=float))
    assert other.slope == pytest.approx(scale * plain.slope)
    assert other.p_value == pytest.approx(plain.p_value)
    assert plain.slope_low <= plain.slope <= plain.slope_high
