"""Is a number of one window beyond the noise of the other? Ranks of its minutes say so.

Mann and Whitney (1947) on the steps of both windows: no shape of distribution is assumed, and a few odd
minutes move nothing. Its variance is corrected for ties and widened by (1 + ρ) / (1 − ρ) for minutes that
resemble their neighbours, as in :mod:`robust_trend`, but twofold at most: what stays alike for longer is a
level and no noise, and levels are what is compared. Of many numbers the p-values are judged together
(Benjamini and Hochberg, 1995).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist
from typing import Final

import numpy as np

from moescope.analysis.robust_trend import widen_for_neighbours
from moescope.schemas.records import FloatArray

FALSE_ALARMS: Final = 0.01
"""Of what is said to differ, as much does not."""

_MOST_WIDENED: Final = 2.0
_NORMAL: Final = NormalDist()


class Change(StrEnum):
    """What became of a number from B to A."""

    HIGHER = "higher"
    LOWER = "lower"
    WITHIN_NOISE = "within noise"
    TOO_LITTLE_DATA = "too little data"

    @property
    def is_beyond_noise(self) -> bool:
        """Whether chance alone does not explain it."""
        return self in {Change.HIGHER, Change.LOWER}


@dataclass(frozen=True, slots=True)
class SeriesTest:
    """How two windows of one number compare.

    Attributes:
        p_value: of two windows without any difference, two-sided; NaN where one of them has no step.
        least_p_value: the smallest that so many steps can have, if all of A lay beyond all of B
            and no two were alike.
        is_higher: whether A's steps lie above B's more often than below.
    """

    p_value: float
    least_p_value: float
    is_higher: bool

    def judge(self, limit: float) -> Change:
        """Say what became of it, at a p-value up to which a difference is no chance."""
        if self.p_value <= limit:
            return Change.HIGHER if self.is_higher else Change.LOWER
        is_blind = math.isnan(self.p_value) or self.least_p_value > FALSE_ALARMS
        return Change.TOO_LITTLE_DATA if is_blind else Change.WITHIN_NOISE


def choose_limit(p_values: Sequence[float]) -> float:
    """The p-value up to which differences are found among so many (Benjamini and Hochberg); NaN is none.

    Returns:
        the largest p of rank k that is at most k / n × :data:`FALSE_ALARMS`; −1 where there is none.
    """
    known = np.sort([value for value in p_values if not math.isnan(value)])
    limits = FALSE_ALARMS * np.arange(1, len(known) + 1) / max(len(known), 1)
    found = known[known <= limits]
    return float(found[-1]) if len(found) else -1.0


def compare_series(steps_of_a: FloatArray, steps_of_b: FloatArray) -> SeriesTest:
    """Compare a number's steps of two windows.

    Args:
        steps_of_a: float64 ``[steps]``, in the order of time; NaN is a step without a value.
        steps_of_b: of the other window, likewise; it may have another number of steps.
    """
    a, b = (values[np.isfinite(values)] for values in (steps_of_a, steps_of_b))
    if not (len(a) and len(b)):
        return SeriesTest(math.nan, math.nan, is_higher=False)
    # Sums of floats differ in their last digits where the numbers are the same: no rank may rest on that.
    scale = max(float(np.abs(np.concatenate([a, b])).max()), 1e-300)
    a, b = (np.round(values / scale, 9) for values in (a, b))
    beyond = np.sign(a[:, None] - b[None, :])
    score = float(beyond.sum()) / 2
    widening = (_widen(a) * len(b) + _widen(b) * len(a)) / (len(a) + len(b))
    deviation = math.sqrt(_variance(a, b) * widening)
    plain = len(a) * len(b) / 2
    untied = math.sqrt(len(a) * len(b) * (len(a) + len(b) + 1) / 12)
    return SeriesTest(
        _p_value(score, deviation), _p_value(plain, untied * math.sqrt(widening)), is_higher=score > 0
    )


def _widen(values: FloatArray) -> float:
    """By how much likeness of a window's neighbours widens its part of the variance."""
    return min(widen_for_neighbours(values - float(np.median(values))), _MOST_WIDENED)


def _variance(a: FloatArray, b: FloatArray) -> float:
    """Variance of the Mann–Whitney statistic without any difference, corrected for ties."""
    _, ties = np.unique(np.concatenate([a, b]), return_counts=True)
    count = len(a) + len(b)
    if count < 2:
        return 0.0
    tied = float((ties**3 - ties).sum()) / (count * (count - 1))
    return max(len(a) * len(b) / 12 * (count + 1 - tied), 0.0)


def _p_value(score: float, deviation: float) -> float:
    """Two-sided, with a correction of one half for continuity."""
    if deviation <= 0:
        return 1.0
    return 2 * _NORMAL.cdf(-max(abs(score) - 0.5, 0.0) / deviation)
