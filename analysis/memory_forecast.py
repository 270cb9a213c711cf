"""Which pool ends first, and when at this growth.

A forecast is a straight line, so it is made only where the newest stretch of a series is one: growth that a
series without a trend hardly ever shows, steady over both halves, larger than the scatter about the line,
to a level that the series did not have before. What comes and goes, and what has stopped growing, gets
none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from moescope.analysis.memory import GROWING_POOLS
from moescope.analysis.robust_trend import MIN_POINTS, Trend, fit_trend
from moescope.schemas.attributes import MemoryPool
from moescope.schemas.records import FloatArray

CONFIDENCE: Final = 0.99
"""Of the interval of a forecast's time."""
SIGNIFICANCE: Final = 0.01
"""Chance of any forecast at all among the pools of a report in which nothing grows."""
_TAILS: Final = (1.0, 0.5, 0.25)
"""Stretches up to now that are tried, the longest first: growth may have begun within the span."""
_REACH: Final = 2.0
"""A line is followed for so many times its own length, and no further."""
_SCATTERS: Final = 4.0
"""Growth of a stretch over the scatter about its line, at least."""
_SHORTEST_SECONDS: Final = 120.0
"""Requests come and go within a minute or two: what is shorter is their noise."""
_STEADY: Final = 0.4
"""The slope of each half over that of the whole stretch, at least."""


class Unit(StrEnum):
    """What a series counts."""

    SLOTS = "slots"
    BLOCKS = "blocks"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class PoolSeries:
    """How full one pool of one engine was. Arrays are ``[points]``, points without a value left out.

    Attributes:
        ranks: EP ranks of the engine, which all have such a pool.
        seconds: float64, Unix seconds, increasing.
        used: float64, in ``unit``.
        limit: what the pool may hold, in ``unit``.
    """

    ranks: tuple[int, ...]
    pool: MemoryPool
    unit: Unit
    seconds: FloatArray
    used: FloatArray
    limit: float


@dataclass(frozen=True, slots=True)
class PoolForecast:
    """When a pool is full at the growth of its newest stretch.

    Attributes:
        ranks, pool, unit: of which series.
        used, limit: newest value and limit, in ``unit``.
        per_minute: growth, ``unit`` a minute.
        low_seconds, seconds, high_seconds: from the newest point until it is full; 0 where it is.
            ``high_seconds`` is infinite where the slowest growth of the interval is none.
        stretch_seconds: how long the growth has been seen.
        trend: what it was decided by.
    """

    ranks: tuple[int, ...]
    pool: MemoryPool
    unit: Unit
    used: float
    limit: float
    per_minute: float
    low_seconds: float
    seconds: float
    high_seconds: float
    stretch_seconds: float
    trend: Trend


def forecast_pools(series: Sequence[PoolSeries]) -> tuple[PoolForecast, ...]:
    """Say which pools fill up, the first to be full first. Reserved pools are never asked.

    The chance of a false one is shared out over all series and stretches that are looked at (Bonferroni).
    """
    asked = [one for one in series if one.pool in GROWING_POOLS and one.limit > 0]
    chance = SIGNIFICANCE / max(len(asked) * len(_TAILS), 1)
    found = [forecast for one in asked if (forecast := forecast_pool(one, chance)) is not None]
    return tuple(sorted(found, key=lambda one: (one.seconds, one.ranks, one.pool.value)))


def forecast_pool(series: PoolSeries, chance: float = SIGNIFICANCE) -> PoolForecast | None:
    """Follow the growth of one pool to its limit; None where there is none that a line describes.

    Args:
        series: of one pool.
        chance: of a forecast for a series that does not grow.
    """
    if len(series.used) < MIN_POINTS or series.used[-1] >= series.limit:
        return None
    for start in _tail_starts(len(series.used)):
        trend = fit_trend(series.seconds[start:], series.used[start:], confidence=CONFIDENCE)
        if trend.slope <= 0 or trend.p_value > chance or trend.growth < _SCATTERS * trend.scatter:
            continue
        if trend.seconds < _SHORTEST_SECONDS or _was_there_before(series, trend):
            continue
        if _is_steady(series, start, trend):
            return _follow(series, trend)
    return None


def _tail_starts(count: int) -> Iterator[int]:
    for part in _TAILS:
        points = round(count * part)
        if points >= MIN_POINTS:
            yield count - points


def _is_steady(series: PoolSeries, start: int, trend: Trend) -> bool:
    """Whether both halves of a stretch grow, neither far less than the whole."""
    middle = (start + len(series.used)) // 2
    for half in (slice(start, middle), slice(middle, None)):
        first, second = np.triu_indices(len(series.used[half]), 1)
        times, used = series.seconds[half], series.used[half]
        slope = np.median((used[second] - used[first]) / (times[second] - times[first]))
        if slope < _STEADY * trend.slope:
            return False
    return True


def _was_there_before(series: PoolSeries, trend: Trend) -> bool:
    """Whether the pool was as full before the newest quarter of the stretch, and emptied again."""
    newest = series.seconds > series.seconds[-1] - trend.seconds / 4
    now = min(trend.level, float(np.median(series.used[newest])) + trend.growth / 8)
    return bool((series.used[~newest] > now + trend.scatter).any())


def _follow(series: PoolSeries, trend: Trend) -> PoolForecast | None:
    left = series.limit - trend.level
    seconds = max(left / trend.slope, 0.0)
    if seconds > _REACH * trend.seconds:
        return None
    # The first touch of the limit comes early by the scatter about the line.
    low = max((left - 2 * trend.scatter) / trend.slope_high, 0.0)
    high = (left + trend.scatter) / trend.slope_low if trend.slope_low > 0 else np.inf
    return PoolForecast(
        *(series.ranks, series.pool, series.unit, float(series.used[-1]), series.limit),
        *(60 * trend.slope, min(low, seconds), seconds, max(float(high), seconds)),
        *(trend.seconds, trend),
    )
