"""A range that holds what it says, for few values and for values that resemble their neighbours."""

import numpy as np
import pytest

from moescope.analysis.gain_spread import spread_of


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("count", [3, 5, 12, 30])
def test_the_next_value_lies_in_the_range_nine_times_in_ten(count, correlation):
    rng = np.random.default_rng(int(count + 100 * correlation))
    hits = 0
    for _ in range(300):
        series = [rng.normal()]
        for _ in range(count):
            series.append(correlation * series[-1] + np.sqrt(1 - correlation**2) * rng.normal())
        spread = spread_of(np.array(series[:count]))
        hits += spread.low <= series[count] <= spread.high
    assert hits >= 270


def test_a_mean_of_nothing_is_rarely_called_surely_positive():
    rng = np.random.default_rng(23)
    alarms = sum(spread_of(rng.normal(size=9)).surely_above > 0 for _ in range(500))

    assert alarms < 45


def test_more_values_narrow_the_range():
    rng = np.random.default_rng(79)
    values = rng.normal(size=200)
    widths = [spread_of(values[:count]).high - spread_of(values[:count]).low for count in (3, 13, 200)]

    assert widths[0] > widths[1] > widths[2] > 2 * 1.645 * 0.9


def test_one_value_has_no_range():
    spread = spread_of(np.array([0.13]))

    assert spread.mean == 0.13
    assert np.isnan([spread.low, spread.high, spread.surely_above]).all()


def test_equal_values_have_a_range_without_width():
    spread = spread_of(np.full(13, 0.25))

    assert (spread.low, spread.high, spread.surely_above) == (0.25, 0.25, 0.25)


def test_no_value_has_no_mean():
    assert np.isnan(spread_of(np.zeros(0)).mean)
