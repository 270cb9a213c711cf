"""From what changes were worth in past windows: what one is worth in the next, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from scipy.stats import chi2, norm, t

from moescope.schemas.records import FloatArray

CONTENT: Final = 0.9
"""Part of future values that the range is to hold."""
CONFIDENCE: Final = 0.9
"""How sure that is."""
FEWEST_FOR_CORRELATION: Final = 8
"""Below so many values a correlation between neighbours cannot be told from chance."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and range of values of which each stands for one window.

    Attributes:
        mean: of the values.
        low, high: a range that holds at least nine in ten of future values, with 90 % confidence.
        surely_above: the mean is above this with 95 % confidence.
        effective: how many independent values these are worth.
    """

    mean: float
    low: float
    high: float
    surely_above: float
    effective: float


def spread_of(values: FloatArray) -> Spread:
    """Sum up values that come one after the other: float64 ``[values]``.

    The range is a two-sided normal tolerance interval, mean ± k s with
    k = z √((n − 1)(1 + 1/n) / χ²) (Howe, 1969; with z at 95 % and χ² the 10 % quantile at n − 1 degrees): a
    prediction interval would hold nine in ten on average only, and with few values often fewer. Neighbours
    are alike where load drifts slowly; with r their correlation, n values count as n (1 − r) / (1 + r).
    Fewer than two values have no range: NaN.
    """
    count = len(values)
    if count < 2:
        mean = float(values.mean()) if count else np.nan
        return Spread(mean, np.nan, np.nan, np.nan, float(count))
    mean = float(values.mean())
    effective = _effective_count(values)
    # The mean of correlated values lies nearer to them than the true one does.
    variance = ((values - mean) ** 2).sum() / (count * (1 - 1 / effective))
    range_factor, mean_factor = _factors(effective)
    half = float(range_factor * np.sqrt(variance))
    error = float(mean_factor * np.sqrt(variance / effective))
    return Spread(mean, mean - half, mean + half, mean - error, effective)


@lru_cache
def _factors(effective: float) -> tuple[float, float]:
    """Standard deviations to the end of the range, and standard errors to the bound of the mean."""
    degrees = effective - 1
    scale = degrees * (1 + 1 / effective) / chi2.ppf(1 - CONFIDENCE, degrees)
    return float(norm.ppf((1 + CONTENT) / 2) * np.sqrt(scale)), float(t.ppf(0.95, degrees))


def _effective_count(values: FloatArray) -> float:
    count = len(values)
    deviations = values - values.mean()
    squares = float((deviations**2).sum())
    if count < FEWEST_FOR_CORRELATION or squares == 0:
        return float(count)
    # A sample's correlation is too low by about (1 + 4 r) / n.
    correlation = float((deviations[1:] * deviations[:-1]).sum()) / squares
    correlation = min(correlation + (1 + 4 * max(correlation, 0.0)) / count, 1.0)
    if correlation <= 1 / np.sqrt(count):
        return float(count)
    return max(2.0, count * (1 - correlation) / (1 + correlation))
