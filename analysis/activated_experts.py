"""How many different experts does a rank read in one forward pass? That, not tokens, bounds decode.

A decode pass has few tokens for many experts, so its time goes into reading weights: a copy that serves one
token costs as much as one that serves ten. A rank with twice the tokens on the same experts is then hardly
slower, and one whose tokens spread over more of its experts is.

Nobody counts this: it is **estimated** from the assignments of a window and the number of passes in it, as if
every pass drew its tokens independently. Tokens of one pass that choose alike activate fewer experts, so this
is the upper end; how far below it the truth may lie, a second estimate shows, with tokens that choose in
pairs. D does not tell: it is the clustering of a window, and most of that lies between the passes of one
request and not within a pass, where each token belongs to another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis.expert_load import ExpertLoadWindow
from moescope.analysis.frozen import lock
from moescope.analysis.imbalance import ReplicaArray, split_over_copies, subtract_noise_floor
from moescope.analysis.store import Store, column_as_array
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.settings import Settings

CLUSTER: Final = 2
"""Tokens of a pass that choose alike in the second estimate."""

_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class ActivatedExperts:
    """Distinct expert copies that each rank is expected to read in one pass; read-only.

    Attributes:
        passes: forward passes of the group in the window.
        assignments_per_pass: float64 ``[layers]``.
        independent: float64 ``[layers, ranks]``, copies read when tokens choose independently: the upper end.
        clustered: float64 ``[layers, ranks]``, when so many of them choose alike as was asked for.
        held: int64 ``[layers, ranks]``, copies that the rank holds.
        noise_floor: float64 ``[layers]``, the max / mean over ranks of copies read that chance alone makes of
            the window's counts; NaN where nothing is read. Too low where rank loads have no verdict.
    """

    passes: int
    assignments_per_pass: FloatArray
    independent: FloatArray
    clustered: FloatArray
    held: IntArray
    noise_floor: FloatArray

    @property
    def ratio(self) -> FloatArray:
        """Max / mean over ranks of copies read, tokens independent: float64 ``[layers]``, NaN without any."""
        return _divide(self.independent.max(axis=1, initial=0), self.independent.mean(axis=1))

    @property
    def net_ratio(self) -> FloatArray:
        """The ratio with its noise floor taken out, as that of rank loads: float64 ``[layers]``."""
        return subtract_noise_floor(self.ratio, self.noise_floor)

    @property
    def busiest_rank(self) -> IntArray:
        """int64 ``[layers]``: position of the rank that reads most on the rank axis."""
        rank: IntArray = self.independent.argmax(axis=1)
        return rank

    @property
    def assignments_per_read(self) -> FloatArray:
        """Assignments that one read of an expert's weights serves: float64 ``[layers]``, NaN without any."""
        return _divide(self.assignments_per_pass, self.independent.sum(axis=1))


def estimate_activated_experts(
    tokens_per_layer_expert: IntArray,
    replicas_per_rank_layer_expert: ReplicaArray,
    design_effect: FloatArray,
    passes: int,
    *,
    cluster: int = CLUSTER,
) -> ActivatedExperts:
    """Estimate the copies that each rank reads in one pass of mean size.

    A copy of expert e is read unless none of the pass's tokens is sent to it:
    P = 1 − exp(−λ), λ = (assignments of e / copies of e) / passes. That is the classical occupancy result
    with Poisson counts; it is within 0.5 % of the binomial one for 16 of 896 experts. Passes of unequal size
    read a little less than passes of the mean size do (P is concave). The noise floor is that of rank loads,
    1 + √(2 ln G) · σ / mean, with the σ that counts of variance D · n give those sums.

    Args:
        tokens_per_layer_expert: int64 ``[layers, experts]``, assignments of the window.
        replicas_per_rank_layer_expert: any integer dtype, ``[ranks, layers, experts]``.
        design_effect: float64 ``[layers]``, for the noise floor; NaN (unknown) counts as 1.
        passes: forward passes of the whole group in the window, at least 1.
        cluster: tokens of a pass that choose alike in the second estimate.
    """
    replicas = replicas_per_rank_layer_expert
    copies = replicas.sum(axis=0)
    per_copy = split_over_copies(tokens_per_layer_expert, copies) / passes
    effect = np.nan_to_num(design_effect, nan=1.0)[:, None]
    independent = _sum_by_rank(-np.expm1(-per_copy), replicas)
    # The variance of P(n / copies / passes), with that of n being D · n.
    slope = np.exp(-per_copy) / (np.maximum(copies, 1) * passes)
    variance = _sum_by_rank(slope**2 * effect * tokens_per_layer_expert, replicas).mean(axis=1)
    spread = _divide(np.sqrt(2 * np.log(len(replicas)) * variance), independent.mean(axis=1))
    return ActivatedExperts(
        passes,
        lock(tokens_per_layer_expert.sum(axis=1) / passes),
        independent,
        _sum_by_rank(-np.expm1(-per_copy / cluster), replicas),
        lock(replicas.sum(axis=2, dtype=np.int64).T.copy()),
        lock(1 + spread),
    )


def read_passes(store: Store, window: ExpertLoadWindow, settings: Settings) -> int | None:
    """Count the forward passes of a window's group; None where no engine reports them, or not so far back.

    Ranks of a group go through their layers together, so the passes of the group are those of the rank that
    made most: others had no tokens in some.

    Raises:
        StoreError: the store cannot answer.
    """
    if window.scope.end_ms - window.start_ms > settings.minute_ttl_days * _DAY_MS:
        return None
    table = store.query(
        "forward_passes",
        service=window.scope.service,
        ep_group=window.scope.ep_group,
        phase=window.scope.phase.value,
        start_ms=window.start_ms,
        end_ms=window.end_ms,
    )
    return int(column_as_array(table, "passes").max(initial=0)) or None


def _sum_by_rank(per_layer_expert: FloatArray, replicas_per_rank_layer_expert: ReplicaArray) -> FloatArray:
    by_layer = replicas_per_rank_layer_expert.transpose(1, 0, 2)
    sums = [held @ values for held, values in zip(by_layer, per_layer_expert, strict=True)]
    summed: FloatArray = lock(np.stack(sums) if sums else np.zeros((0, len(replicas_per_rank_layer_expert))))
    return summed


def _divide(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    out = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=out, where=denominator > 0)
    return out
