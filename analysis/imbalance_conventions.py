"""The same balance in each engine's words: three formulas, two ways to make one number of all layers.

A layer's figure differs only in its formula. An engine's one number differs in how it puts layers together as
well, and engines take it from single passes, where noise makes every layer look less balanced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.schemas.records import FloatArray

VLLM_FORMULA: Final = "Σ mean / Σ max rank load over layers"
SGLANG_FORMULA: Final = "mean over layers of mean / max rank load"
_SGLANG_EPSILON: Final = 1e-5


@dataclass(frozen=True, slots=True)
class BalanceConventions:
    """All layers of one EP group and phase in one number each; NaN without tokens.

    Attributes:
        mean_ratio: mean over layers of max / mean: what is minimised by a plan, since a pass waits for the
            fullest rank of one layer after the other.
        mean_excess: TensorRT-LLM's max / mean − 1, averaged over layers.
        vllm_balancedness: Σ mean / Σ max, as vLLM logs it (``log_balancedness``): one hot layer is averaged
            away.
        sglang_balancedness: mean over layers of (mean + 10⁻⁵) / (max + 10⁻⁵), as SGLang reports it.
        single_pass_balancedness: what SGLang's figure would be about in one pass of mean size, noise and
            all; NaN where the passes are not known.
    """

    mean_ratio: float
    mean_excess: float
    vllm_balancedness: float
    sglang_balancedness: float
    single_pass_balancedness: float


def compare_conventions(load_per_layer_rank: FloatArray, passes: int | None = None) -> BalanceConventions:
    """Put a window's rank loads in the words of each engine.

    vLLM 0.32 (``EplbState.step``) sums mean and max over layers before it divides; SGLang 0.5.23
    (``compute_utilization_rate``) divides in each layer and averages, per pass, then over 10, 100 and 1000
    passes. A layer without tokens is left out. In a single pass of mean load μ a rank, noise adds
    2 ln G / μ to (max / mean − 1)².

    Args:
        load_per_layer_rank: float64 ``[layers, ranks]``, assignments of the window.
        passes: forward passes in it.
    """
    loads = load_per_layer_rank[load_per_layer_rank.any(axis=1)]
    if not loads.size:
        return BalanceConventions(*[np.nan] * 5)
    mean, largest = loads.mean(axis=1), loads.max(axis=1)
    ratio = largest / mean
    single_pass = np.nan
    if passes:
        noise = 2 * np.log(loads.shape[1]) / (mean / passes)
        single_pass = float((1 / (1 + np.sqrt((ratio - 1) ** 2 + noise))).mean())
    return BalanceConventions(
        *(float(ratio.mean()), float(ratio.mean()) - 1),
        float(mean.sum() / largest.sum()),
        float(((mean + _SGLANG_EPSILON) / (largest + _SGLANG_EPSILON)).mean()),
        single_pass,
    )
