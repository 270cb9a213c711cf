"""The design effect D: by how much routed counts scatter more than independent tokens would.

Neighbouring tokens of one request choose alike, so 100 assignments may be worth only 100 / D independent
ones. Without D, a test on raw counts finds hundreds of hot experts in a uniform router.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.schemas.records import FloatArray, IntArray

MIN_EFFECTIVE_INTERVALS: Final = 1.5
"""Below this nearly all tokens lie in one interval, and nothing can be said about how counts scatter."""


@dataclass(frozen=True, slots=True)
class IntervalSums:
    """Sums over the T sub-intervals of a window: all that the design effect needs.

    Attributes:
        squares: float64 ``[layers]``, A = Σₜ Σₑ xₜₑ², with x the assignments of expert e in interval t.
        total_squares: float64 ``[layers]``, Σₜ Nₜ², with Nₜ the assignments of interval t.
    """

    squares: FloatArray
    total_squares: FloatArray


def sum_intervals(tokens_per_interval_layer_expert: IntArray) -> IntervalSums:
    """Form the sums from assignments ``[intervals, layers, experts]``."""
    counts = tokens_per_interval_layer_expert.astype(np.float64)
    return IntervalSums((counts**2).sum(axis=(0, 2)), (counts.sum(axis=2) ** 2).sum(axis=0))


def estimate_effective_intervals(tokens_per_layer_expert: IntArray, sums: IntervalSums) -> FloatArray:
    """How many equally busy intervals the window is worth: N² / Σₜ Nₜ².

    Kish's effective sample size. It is T when every interval carries the same traffic, and less when the
    window starts or ends within one.

    Returns:
        float64 ``[layers]``, NaN for a layer without tokens.
    """
    totals = tokens_per_layer_expert.sum(axis=-1).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        effective: FloatArray = totals**2 / sums.total_squares
    return effective


def estimate_design_effect(tokens_per_layer_expert: IntArray, sums: IntervalSums) -> FloatArray:
    """Estimate D per layer.

    D = max(1, 1 + (A − N − (B − A)/(T − 1)) / N) with A = Σₜₑ xₜₑ², B = Σₑ nₑ², N = Σₑ nₑ and T intervals
    (DESIGN §6). Products of different intervals, (B − A), hold no scatter, only rates; scaled to the same
    weight they are what A would be without any. T is the effective number of intervals, so that a
    half-filled minute at either end, or traffic that swings, is not taken for clustering. Rates that drift
    within the window do raise D: fewer alarms, not more.

    Args:
        tokens_per_layer_expert: int64 ``[layers, experts]``, assignments of the whole window.
        sums: of the same window.

    Returns:
        float64 ``[layers]``, at least 1; NaN where the window is worth fewer than
        :data:`MIN_EFFECTIVE_INTERVALS`.
    """
    counts = tokens_per_layer_expert.astype(np.float64)
    assignments = counts.sum(axis=-1)
    across = (counts**2).sum(axis=-1) - sums.squares
    intervals = estimate_effective_intervals(tokens_per_layer_expert, sums)
    known = intervals >= MIN_EFFECTIVE_INTERVALS  # NaN compares false
    excess = sums.squares - assignments - across / np.where(known, intervals - 1, 1)
    effect = np.maximum(1, 1 + excess / np.where(known, assignments, 1))
    estimated: FloatArray = np.where(known, effect, np.nan)
    return estimated
