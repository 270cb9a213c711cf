"""Does a series grow, and how fast? Medians of slopes, which a few odd values do not move.

Theil (1950) and Sen (1968) for the slope and its interval, Mann (1945) and Kendall for whether there is
one. Its variance is widened by (1 + ρ) / (1 − ρ) as for a first-order autoregression, with ρ from the ranks
of what the line leaves (Hamed and Rao 1998), its bias in short series taken out (Kendall 1954): neighbours
that resemble each other are no independent evidence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from moescope.schemas.records import FloatArray

MIN_POINTS: Final = 8
_MAD_TO_SIGMA: Final = 1.4826
_MOST_ALIKE: Final = 0.9
_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True)
class Trend:
    """A straight line through a series, fitted to medians.

    Attributes:
        slope: of the line, units a second.
        slope_low, slope_high: interval of the slope at the confidence that was asked for.
        level: of the line at the last point, units.
        scatter: of the points about the line, units: 1.4826 × median absolute deviation.
        p_value: of a series that neither grows nor falls, two-sided.
        seconds: from the first point to the last.
        points: how many there are.
    """

    slope: float
    slope_low: float
    slope_high: float
    level: float
    scatter: float
    p_value: float
    seconds: float
    points: int

    @property
    def growth(self) -> float:
        """What the line gains from the first point to the last, units."""
        return self.slope * self.seconds


def fit_trend(seconds: FloatArray, values: FloatArray, *, confidence: float = 0.95) -> Trend:
    """Fit a line through a series.

    Args:
        seconds: float64 ``[points]``, increasing.
        values: float64 ``[points]``, finite.
        confidence: of the slope's interval.

    Raises:
        ValueError: fewer than :data:`MIN_POINTS` points.
    """
    count = len(seconds)
    if count < MIN_POINTS:
        raise ValueError(f"a trend needs {MIN_POINTS} points, not {count}")
    first, second = np.triu_indices(count, 1)
    rises = values[second] - values[first]
    slopes = np.sort(rises / (seconds[second] - seconds[first]))
    slope = float(np.median(slopes))
    rest = values - slope * seconds
    offset = float(np.median(rest))
    scatter = _MAD_TO_SIGMA * float(np.median(np.abs(rest - offset)))
    deviation = math.sqrt(_kendall_variance(values, rest))
    score = float(np.sign(rises).sum())
    low, high = _slope_interval(slopes, deviation, confidence)
    z_score = max(abs(score) - 1, 0) / deviation if deviation > 0 else 0.0
    return Trend(
        *(slope, low, high, offset + slope * float(seconds[-1]), scatter),
        2 * (1 - _NORMAL.cdf(z_score)),
        float(seconds[-1] - seconds[0]),
        count,
    )


def _slope_interval(slopes: FloatArray, deviation: float, confidence: float) -> tuple[float, float]:
    """Sen's interval: so many slopes in from either end of the sorted ones ``[pairs]``."""
    reach = _NORMAL.inv_cdf((1 + confidence) / 2) * deviation
    low = int(np.floor((len(slopes) - reach) / 2))
    high = int(np.ceil((len(slopes) + reach) / 2)) - 1
    last = len(slopes) - 1
    return float(slopes[min(max(low, 0), last)]), float(slopes[min(max(high, 0), last)])


def _kendall_variance(values: FloatArray, rest: FloatArray) -> float:
    """Variance of Kendall's score: with ties, and widened where neighbours of ``rest`` are alike."""
    count = len(values)
    _, ties = np.unique(values, return_counts=True)
    tied = float((ties * (ties - 1) * (2 * ties + 5)).sum())
    plain = (count * (count - 1) * (2 * count + 5) - tied) / 18
    return max(plain, 0.0) * widen_for_neighbours(rest)


def widen_for_neighbours(rest: FloatArray) -> float:
    """By how much likeness of neighbours widens a variance: (1 + ρ) / (1 − ρ), without its bias, at least 1.

    Args:
        rest: float64 ``[points]``, what a line or a middle leaves, in the order of time.
    """
    count = len(rest)
    ranks = _mean_ranks(rest)
    power = float(ranks @ ranks)
    if power == 0:
        return 1.0
    alike = float(ranks[:-1] @ ranks[1:]) / power
    alike = min(alike + (1 + 4 * alike) / count, _MOST_ALIKE)
    return (1 + alike) / (1 - alike) if alike > 0 else 1.0


def _mean_ranks(rest: FloatArray) -> FloatArray:
    """Ranks about their mean; what differs by no more than rounding does has one rank."""
    coarse = np.round(rest / max(float(np.abs(rest).max()), 1e-300), 9)
    _, place, times = np.unique(coarse, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(times) - (times - 1) / 2)[place]
    about_mean: FloatArray = ranks - ranks.mean()
    return about_mean
