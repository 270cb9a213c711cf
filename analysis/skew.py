"""How unevenly does a layer use its experts? Context beside the verdicts, never a verdict.

All measures take the design effect D into account: raw ones call a uniform router skewed when counts are
small (at a mean of 10 its Gini is 0.18).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.schemas.records import FloatArray, IntArray

BUSIEST_PART: Final = 0.2


@dataclass(frozen=True, slots=True)
class Skew:
    """Skew of each layer; float64 ``[layers]``, NaN where a layer has too few tokens to say.

    Attributes:
        busiest_fifth_share: part of the assignments that the busiest 20 % of the experts get.
        gini: 0 even … 1 everything on one expert, noise taken out.
        effective_experts: experts that the layer uses as if evenly, by the inverse Simpson index.
        effective_experts_entropy: the same by the entropy; counts rarely used experts for more.
    """

    busiest_fifth_share: FloatArray
    gini: FloatArray
    effective_experts: FloatArray
    effective_experts_entropy: FloatArray


def measure_skew(tokens_per_layer_expert: IntArray, design_effect: FloatArray) -> Skew:
    """Measure every layer: int64 ``[layers, experts]``; NaN in ``design_effect`` counts as 1."""
    effect = np.nan_to_num(design_effect, nan=1.0)
    return Skew(
        busiest_share(tokens_per_layer_expert),
        debiased_gini(tokens_per_layer_expert, effect),
        effective_experts(tokens_per_layer_expert, effect),
        effective_experts_by_entropy(tokens_per_layer_expert, effect),
    )


def typical(values: FloatArray) -> float | None:
    """The median over layers, those without a value left out; None when no layer has one."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None


def busiest_share(tokens_per_layer_expert: IntArray, part: float = BUSIEST_PART) -> FloatArray:
    """Share of the assignments of the busiest ``part`` of the experts: the 80/20 question, as counted."""
    num_busiest = math.ceil(part * tokens_per_layer_expert.shape[1])
    ordered = np.sort(tokens_per_layer_expert, axis=1)[:, ::-1]
    return _divide(ordered[:, :num_busiest].sum(axis=1), ordered.sum(axis=1))


def debiased_gini(tokens_per_layer_expert: IntArray, design_effect: FloatArray) -> FloatArray:
    """Gini coefficient with the part that noise alone makes taken out.

    G = Σᵢ (2i − E − 1) n₍ᵢ₎ / (E N) over counts in rising order; noise alone gives 1/√(π μ / D) at a mean
    count μ, so √max(0, G² − D/(π μ)) remains (planner's notes, §7; approximate).
    """
    num_experts = tokens_per_layer_expert.shape[1]
    ordered = np.sort(tokens_per_layer_expert, axis=1).astype(np.float64)
    weights = 2 * np.arange(1, num_experts + 1) - num_experts - 1
    total = ordered.sum(axis=1)
    raw = _divide(ordered @ weights, num_experts * total)
    noise = _divide(design_effect * num_experts, np.pi * total)
    gini: FloatArray = np.sqrt(np.maximum(0, raw**2 - noise))
    return gini


def effective_experts(tokens_per_layer_expert: IntArray, design_effect: FloatArray) -> FloatArray:
    """Inverse Simpson index without bias: N (N − D) / Σ n (n − D).

    With D = 1 it is the textbook's N (N − 1) / Σ n (n − 1), which finds 891 of 896 even experts at a mean
    count of 1; clustering puts D in place of the 1. Without bias means that chance may put it a
    little above the number of experts.
    """
    counts = tokens_per_layer_expert.astype(np.float64)
    total = counts.sum(axis=1)
    pairs = (counts * (counts - design_effect[:, None])).sum(axis=1)
    return _divide(total * (total - design_effect), np.where(pairs > 0, pairs, 0))


def effective_experts_by_entropy(tokens_per_layer_expert: IntArray, design_effect: FloatArray) -> FloatArray:
    """exp(H) with the Miller-Madow correction: H = −Σ p ln p + D (K − 1) / (2 N), K the experts seen.

    Never more than there are experts.
    """
    counts = tokens_per_layer_expert.astype(np.float64)
    total = counts.sum(axis=1)
    shares = _divide(counts, total[:, None])
    logs = np.log(shares, out=np.zeros(shares.shape), where=shares > 0)
    seen = (counts > 0).sum(axis=1)
    correction = _divide(design_effect * (seen - 1), 2 * total)
    effective = np.exp(-(shares * logs).sum(axis=1) + correction)
    bounded: FloatArray = np.minimum(effective, tokens_per_layer_expert.shape[1])
    return bounded


def _divide(numerator: np.ndarray, denominator: np.ndarray) -> FloatArray:
    denominator = np.broadcast_to(denominator, numerator.shape)
    out = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=out, where=denominator > 0)
    return out
