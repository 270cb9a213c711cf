"""Cells of a heatmap: the numbers themselves, and octaves of colour."""

import numpy as np
import pytest

from moescope.analysis.heatmap import PERCENT, CellValue, make_cells
from moescope.schemas.attributes import Phase
from tests.analysis.known_workloads import KnownFleet, assess_fleet

FLEET = KnownFleet(minutes=3, sigma=0.5)


@pytest.fixture(scope="module")
def window():
    return assess_fleet(FLEET, Phase.DECODE).window


def test_multiples_of_the_median_are_whole_percent_in_sixteen_bits(window):
    cells = make_cells(window, CellValue.TIMES_MEDIAN)
    expected = window.tokens / np.median(window.tokens, axis=1, keepdims=True)
    assert cells.values.dtype == np.uint16
    np.testing.assert_allclose(cells.values / PERCENT, expected, atol=0.005 + 1e-9)
    assert cells.steps == (25, 50, 100, 200, 400, 800, 1600)


def test_rounding_shifts_no_colour_by_a_fiftieth_of_an_octave_above_the_lowest_step(window):
    cells = make_cells(window, CellValue.TIMES_MEDIAN)
    ratios = window.tokens / np.median(window.tokens, axis=1, keepdims=True)
    is_coloured = ratios >= 0.5
    shift = np.log2(cells.values[is_coloured] / PERCENT / ratios[is_coloured])
    assert is_coloured.any()
    assert np.abs(shift).max() < 1 / 50


def test_multiples_beyond_sixteen_bits_are_kept():
    fleet = KnownFleet(minutes=1, tokens_per_minute=79_000_000, hot={(Phase.DECODE, 3, 23): 10_000.0})
    window = assess_fleet(fleet, Phase.DECODE).window
    cells = make_cells(window, CellValue.TIMES_MEDIAN)
    expected = PERCENT * window.tokens[2, 23] / np.median(window.tokens[2])
    assert expected > np.iinfo(np.uint16).max
    assert cells.values[2, 23] == pytest.approx(expected, abs=0.51)


def test_rates_are_whole_assignments_a_minute(window):
    cells = make_cells(window, CellValue.PER_MINUTE)
    assert cells.values.dtype == np.uint16
    np.testing.assert_array_equal(cells.values, np.round(window.tokens / 3))


def test_rates_beyond_sixteen_bits_are_kept(window):
    busy = assess_fleet(KnownFleet(minutes=1, tokens_per_minute=79_000_000), Phase.DECODE).window
    cells = make_cells(busy, CellValue.PER_MINUTE)
    assert cells.values.dtype == np.float32
    np.testing.assert_allclose(cells.values, busy.tokens, rtol=1e-6)


def test_steps_are_octaves_below_a_round_number(window):
    steps = make_cells(window, CellValue.PER_MINUTE).steps
    np.testing.assert_array_equal(np.diff(np.log2(steps)), 1)
    top = window.tokens.max() / 3
    assert top / 2.5 <= steps[-1] <= top * 2.5
    assert int(f"{steps[-1]:.0e}"[0]) in (1, 2, 4, 8)


def test_window_without_tokens_has_cells_all_the_same():
    empty = assess_fleet(KnownFleet(tokens_per_minute=0), Phase.DECODE).window
    for value in CellValue:
        cells = make_cells(empty, value)
        assert not cells.values.any()
        assert list(cells.steps) == sorted(set(cells.steps))
