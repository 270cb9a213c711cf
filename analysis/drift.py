"""Did a layer's use of its experts change between two windows, and by how much?

Two questions, two measures. *Whether*: a two-sample χ² on counts, divided by the design effect; undivided it
finds drift in every clustered router. *How much*: the total variation between the two, above what noise alone
makes of it. A large window makes the smallest change significant, and drift by itself harms nobody: what it
costs with the placement at hand is said by :mod:`moescope.analysis.regret`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.stats import chi2

from moescope.analysis.frozen import lock, locked_int64
from moescope.analysis.imbalance import BoolArray
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.settings import Settings

SIGNIFICANCE: Final = Settings().drift_significance
"""p-value below which a layer has drifted: one false alarm in a hundred looks at a model of 92 layers."""


@dataclass(frozen=True, slots=True)
class Drift:
    """What changed from one window to another, by layer. Arrays are ``[layers]``, read-only.

    Attributes:
        statistic: float64, X² / D; NaN where one of the windows has no tokens or D is unknown.
        degrees: int64, degrees of freedom: experts chosen in either window, less one.
        p_value: float64, probability of such a statistic without any change; NaN as above.
        total_variation: float64, ½ Σ |p₁ − p₂| over the experts' shares, 0 … 1; NaN without tokens.
        floor: float64, the total variation that noise alone would show.
        net_variation: float64, what lies above the floor: the share of the assignments that surely moved to
            other experts; 0 where no change is significant, NaN without tokens.
        is_significant: bool, p-value below the limit.
    """

    statistic: FloatArray
    degrees: IntArray
    p_value: FloatArray
    total_variation: FloatArray
    floor: FloatArray
    net_variation: FloatArray
    is_significant: BoolArray


def measure_drift(
    earlier_per_layer_expert: IntArray,
    later_per_layer_expert: IntArray,
    design_effect: FloatArray,
    *,
    significance: float = SIGNIFICANCE,
) -> Drift:
    """Compare two windows of one phase, which may be of different length.

    X² = Σ (√(N₂/N₁) n₁ − √(N₁/N₂) n₂)² / (n₁ + n₂), the two-sample χ² of binned counts (Numerical Recipes,
    §14.3), divided by D, the first-order correction of clustered counts (Rao and Scott, 1981).
    Noise alone moves √(2/π) · ½ Σₑ √(pₑ D (1/N₁ + 1/N₂)) of the assignments, with p the shares of both
    windows together: for a uniform router the planner's notes' ½ √(2/π) √(E (1/N₁ + 1/N₂)).

    Args:
        earlier_per_layer_expert: int64 ``[layers, experts]``, assignments.
        later_per_layer_expert: of the other window, on the same axes.
        design_effect: float64 ``[layers]``, D within the windows; a layer with NaN (unknown) has no verdict.
        significance: p-value below which a change is no chance.
    """
    first, second = earlier_per_layer_expert.astype(np.float64), later_per_layer_expert.astype(np.float64)
    total_1, total_2 = first.sum(axis=1), second.sum(axis=1)
    has_both = (total_1 > 0) & (total_2 > 0)
    total_1, total_2 = (np.where(has_both, total, 1.0)[:, None] for total in (total_1, total_2))
    both = first + second
    unlike = np.sqrt(total_2 / total_1) * first - np.sqrt(total_1 / total_2) * second
    raw = np.divide(unlike**2, both, out=np.zeros(both.shape), where=both > 0).sum(axis=1)
    statistic = np.where(has_both, raw / design_effect, np.nan)
    degrees = np.maximum((both > 0).sum(axis=1) - 1, 0)
    p_value = np.where(degrees > 0, chi2.sf(statistic, np.maximum(degrees, 1)), 1.0)
    p_value = np.where(np.isnan(statistic), np.nan, p_value)

    variation = np.where(has_both, 0.5 * np.abs(first / total_1 - second / total_2).sum(axis=1), np.nan)
    spread = np.sqrt(both / (total_1 + total_2) * (1 / total_1 + 1 / total_2)).sum(axis=1)
    effect = np.nan_to_num(design_effect, nan=1.0)
    floor = np.where(has_both, 0.5 * np.sqrt(2 / np.pi * effect) * spread, np.nan)
    is_significant = p_value < significance  # NaN compares false
    # In cells of less than D assignments the floor is too low, so only what is significant counts as moved.
    net = np.where(is_significant | np.isnan(variation), np.maximum(variation - floor, 0), 0.0)
    return Drift(
        *(lock(statistic), locked_int64(degrees), lock(p_value), lock(variation), lock(floor)),
        *(lock(net), lock(is_significant)),
    )
