"""Experts that a layer hardly uses, or never: cold and dead ones, and the copies that they hold for nothing.

Few counts make every expert look idle: at one assignment an expert a uniform router leaves 330 of 896
without any. So both verdicts ask what chance would have done.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc, gammaincc

from moescope.analysis.frozen import lock
from moescope.analysis.hot_experts import fit_posterior
from moescope.analysis.imbalance import BoolArray, ReplicaArray
from moescope.schemas.records import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class IdleExperts:
    """Idle experts of one EP group and phase in one window; arrays are read-only.

    Attributes:
        is_dead: bool ``[layers, experts]``, never chosen although there were enough assignments to tell.
        is_cold: bool ``[layers, experts]``, certainly far below the median; none of the dead.
        can_tell: bool ``[layers]``, whether a dead expert would be recognised: elsewhere data are too thin.
        assignments_to_tell: float64 ``[layers]``, assignments of the median expert from which they are not;
            NaN where the design effect is unknown.
    """

    is_dead: BoolArray
    is_cold: BoolArray
    can_tell: BoolArray
    assignments_to_tell: FloatArray

    @property
    def num_dead(self) -> int:
        """Dead experts of all layers."""
        return int(self.is_dead.sum())

    @property
    def num_cold(self) -> int:
        """Cold experts of all layers, the dead left out."""
        return int(self.is_cold.sum())

    def wasted_copies(self, copies_per_layer_expert: ReplicaArray) -> int:
        """Copies beyond the first that dead and cold experts hold: slots that hotter ones could have.

        Args:
            copies_per_layer_expert: any integer dtype, ``[layers, experts]``, copies in the group.
        """
        idle = self.is_dead | self.is_cold
        return int(np.maximum(copies_per_layer_expert[idle].astype(np.int64) - 1, 0).sum())


def find_idle_experts(
    tokens_per_layer_expert: IntArray,
    design_effect: FloatArray,
    *,
    cold_ratio: float,
    dead_ratio: float,
    confidence: float,
) -> IdleExperts:
    """Find the cold and the dead experts of every layer.

    **Cold** mirrors the rule for hot ones: P(Gamma(a + n', rate b + 1) < cold_ratio · m) > confidence, with m
    the median posterior mean. A router whose rates spread widely makes that prior believe in idle experts on
    no evidence, so the counts alone must say so too: P(Poisson(cold_ratio · m) ≤ n') < 1 − confidence.

    **Dead** is an expert with no assignment at all where even one at ``dead_ratio`` of the median would have
    had some: E · exp(−dead_ratio · median / D) < 1 − confidence, which guards all E experts of a layer at
    once. 896 experts, 1 in 20 and 0.99 ask for 228 · D assignments of the median expert.

    Args:
        tokens_per_layer_expert: int64 ``[layers, experts]``.
        design_effect: float64 ``[layers]``; a layer with NaN (unknown) is not judged.
        cold_ratio: multiple of the median below which an expert is cold.
        dead_ratio: multiple of the median at which an expert is as good as dead.
        confidence: posterior probability.
    """
    doubt = 1 - confidence
    counts = tokens_per_layer_expert / design_effect[:, None]
    shape, rate = fit_posterior(tokens_per_layer_expert, design_effect)
    means = shape / rate
    limit = cold_ratio * np.median(means, axis=1, keepdims=True)
    candidates = means < limit  # NaN compares false
    is_cold = np.zeros(means.shape, dtype=np.bool_)
    scaled = np.broadcast_to(rate * limit, means.shape)[candidates]
    wide = np.broadcast_to(limit, means.shape)[candidates]
    is_cold[candidates] = (gammainc(shape[candidates], scaled) > confidence) & (
        gammaincc(counts[candidates] + 1, wide) < doubt
    )
    needed = np.log(tokens_per_layer_expert.shape[1] / doubt) / dead_ratio if dead_ratio else np.inf
    can_tell = np.median(counts, axis=1) > needed
    is_dead = (tokens_per_layer_expert == 0) & can_tell[:, None]
    return IdleExperts(
        *(lock(is_dead), lock(is_cold & ~is_dead), lock(can_tell), lock(needed * design_effect))
    )
