"""Is the work of a layer spread evenly over the ranks? The ratio, its noise floor, a verdict.

Formulas in use, all of one layer's rank loads:

* imbalance ratio = **max / mean** (≥ 1): papers on expert parallelism, and here.
* balancedness = **mean / max** (0 … 1): what vLLM and SGLang report.
* TensorRT-LLM reports max / mean − 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from moescope.schemas.records import FloatArray, IntArray

BoolArray: TypeAlias = npt.NDArray[np.bool_]
ReplicaArray: TypeAlias = npt.NDArray[np.integer[Any]]

RATIO_FORMULA: Final = "max / mean rank load"
BALANCEDNESS_FORMULA: Final = "mean / max rank load"
EXCESS_FORMULA: Final = "max / mean rank load − 1"


class Verdict(StrEnum):
    """What can be said about a layer's balance."""

    OK = "ok"
    IMBALANCED = "imbalanced"
    TOO_LITTLE_DATA = "too little data"


@dataclass(frozen=True, slots=True)
class Imbalance:
    """The balance of each layer over the ranks of one EP group, in one phase.

    Attributes:
        rank_loads: float64 ``[layers, ranks]``, assignments computed by each rank.
        ratio: float64 ``[layers]``, max / mean; NaN for a layer without tokens.
        noise_floor: float64 ``[layers]``, the ratio that perfectly uniform routing would show.
        net_ratio: float64 ``[layers]``, the ratio with the floor taken out; what the threshold applies to.
        verdicts: one per layer.
    """

    rank_loads: FloatArray
    ratio: FloatArray
    noise_floor: FloatArray
    net_ratio: FloatArray
    verdicts: tuple[Verdict, ...]

    @property
    def balancedness(self) -> FloatArray:
        """float64 ``[layers]``, mean / max, as vLLM and SGLang report it."""
        inverse: FloatArray = 1 / self.ratio
        return inverse

    @property
    def hottest_rank(self) -> IntArray:
        """int64 ``[layers]``: position of the busiest rank on the rank axis."""
        rank: IntArray = self.rank_loads.argmax(axis=1)
        return rank

    @property
    def has_verdict(self) -> BoolArray:
        """Which layers have enough tokens to be judged: bool ``[layers]``."""
        judged = [verdict is not Verdict.TOO_LITTLE_DATA for verdict in self.verdicts]
        return np.asarray(judged, dtype=np.bool_)

    @property
    def floor_of_judged(self) -> FloatArray:
        """The noise floor of the layers with a verdict, NaN elsewhere: float64 ``[layers]``."""
        floor: FloatArray = np.where(self.has_verdict, self.noise_floor, np.nan)
        return floor

    @property
    def is_imbalanced(self) -> BoolArray:
        """Which layers are: bool ``[layers]``."""
        return np.asarray([verdict is Verdict.IMBALANCED for verdict in self.verdicts], dtype=np.bool_)


def compute_rank_loads(
    tokens_per_layer_expert: IntArray, replicas_per_rank_layer_expert: ReplicaArray
) -> FloatArray:
    """Expert load × placement, an expert's load split evenly over its copies.

    load[l, r] = Σₑ n[l, e] · replicas[r, l, e] / Σᵣ replicas[r, l, e]. vLLM spreads tokens over copies by a
    hash and SGLang at random: both even. Experts without a copy anywhere add nothing.

    Args:
        tokens_per_layer_expert: ``[layers, experts]``.
        replicas_per_rank_layer_expert: any integer dtype, ``[ranks, layers, experts]``.

    Returns:
        float64 ``[layers, ranks]``.
    """
    load_per_copy = split_over_copies(tokens_per_layer_expert, replicas_per_rank_layer_expert.sum(axis=0))
    by_layer = replicas_per_rank_layer_expert.transpose(1, 0, 2)
    loads = np.zeros(by_layer.shape[:2])
    for layer, (held, load) in enumerate(zip(by_layer, load_per_copy, strict=True)):
        loads[layer] = held @ load
    return loads


def split_over_copies(tokens_per_layer_expert: IntArray, copies_per_layer_expert: ReplicaArray) -> FloatArray:
    """Assignments that one copy of each expert computes: float64 ``[layers, experts]``, 0 without a copy."""
    copies = copies_per_layer_expert.astype(np.float64)
    out = np.zeros(copies.shape)
    np.divide(tokens_per_layer_expert, copies, out=out, where=copies > 0)
    return out


def estimate_noise_floor(mean_load: FloatArray, num_ranks: int, design_effect: FloatArray) -> FloatArray:
    """The max / mean that uniform routing shows: 1 + √(2 ln G · D / mean load).

    The expected maximum of G Poisson loads of that mean (Gaussian extreme value; notes of the planner, §5:
    1.27 at 64 ranks and 256 tokens of 16 experts). D makes the effective mean mean / D.
    """
    floor: FloatArray = 1 + np.sqrt(2 * np.log(num_ranks) * design_effect / mean_load)
    return floor


def subtract_noise_floor(ratio: FloatArray, floor: FloatArray) -> FloatArray:
    """Take the noise out of a ratio: 1 + √max(0, (ratio − 1)² − (floor − 1)²).

    Real differences and noise are independent, so their excesses over 1 add as squares, as in a debiased
    Gini or variance. Uniform routing then shows 1. A real ratio of 2 keeps its 2, where a plain difference
    would hide it behind a floor that one rank's own noise does not reach.
    """
    excess = np.maximum(0, (ratio - 1) ** 2 - (floor - 1) ** 2)
    net: FloatArray = 1 + np.sqrt(excess)
    return net


def judge_imbalance(
    rank_loads: FloatArray, design_effect: FloatArray, *, acceptable_ratio: float, min_mean_load: float
) -> Imbalance:
    """Judge every layer.

    A layer is imbalanced when its net ratio is above ``acceptable_ratio``. There is no verdict below
    ``min_mean_load`` effective assignments a rank (mean / D): 16 tokens a step already give uniform routing a
    ratio above 2 nine times in ten.

    Args:
        rank_loads: float64 ``[layers, ranks]``.
        design_effect: float64 ``[layers]``; NaN (unknown) counts as 1 in the floor.
        acceptable_ratio: max / mean.
        min_mean_load: assignments a rank in the window.
    """
    effect = np.nan_to_num(design_effect, nan=1.0)
    mean = rank_loads.mean(axis=1)
    has_tokens = mean > 0
    safe_mean = np.where(has_tokens, mean, 1)
    ratio = np.where(has_tokens, rank_loads.max(axis=1, initial=0) / safe_mean, np.nan)
    floor = np.where(has_tokens, estimate_noise_floor(safe_mean, rank_loads.shape[1], effect), np.nan)
    net = subtract_noise_floor(ratio, floor)
    enough = mean / effect >= min_mean_load
    verdicts = tuple(
        Verdict.TOO_LITTLE_DATA if not e else Verdict.IMBALANCED if n > acceptable_ratio else Verdict.OK
        for e, n in zip(enough & has_tokens, net, strict=True)
    )
    return Imbalance(rank_loads, ratio, floor, net, verdicts)
