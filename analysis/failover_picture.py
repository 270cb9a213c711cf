"""One loss rank by rank and layer by layer: what is drawn of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis.failover_facts import FailoverFacts
from moescope.analysis.failover_impact import FailoverImpact, FailoverStrategy, lose_ranks
from moescope.analysis.failover_losses import Loss
from moescope.analysis.frozen import lock, locked_float64
from moescope.analysis.imbalance import BoolArray
from moescope.schemas.records import FloatArray, IntArray

_MOST_EXPERTS: Final = 50


@dataclass(frozen=True, slots=True)
class LostExpert:
    """An expert without a copy elsewhere.

    Attributes:
        layer: the model's layer index.
        layer_share: part of its layer's assignments that went to it.
    """

    layer: int
    expert: int
    layer_share: float


@dataclass(frozen=True, slots=True, eq=False)
class LossPicture:
    """A loss under one strategy. ``R`` stands for the ranks that reported what they hold.

    Attributes:
        strategy: which.
        ranks: int64 ``[R]``, EP ranks.
        is_lost: bool ``[R]``, the ranks that are gone.
        load_before, load_after: float64 ``[R]``, load over all layers in multiples of the mean rank before.
        growth: float64 ``[R]``, after / before; 0 for lost ranks, 1 without load.
        layers: int64 ``[layers]``, the model's layer indices.
        lost_share_by_layer: float64 ``[layers]``, part of each layer's assignments that went to lost experts.
        lost_by_layer: int64 ``[layers]``, lost experts.
        bytes_to_load: float64 ``[R]``, weights that each rank reads again; NaN where their size is not known,
            0 where the strategy loads nothing.
        bytes_beyond: float64 ``[R]``, of these, what has no slot and needs memory that is free.
        free_bytes: float64 ``[R]``, memory that no pool is meant for; NaN where it is not known.
        lost: the lost experts with the largest share of their layer, the largest first.
    """

    strategy: FailoverStrategy
    ranks: IntArray
    is_lost: BoolArray
    load_before: FloatArray
    load_after: FloatArray
    growth: FloatArray
    layers: IntArray
    lost_share_by_layer: FloatArray
    lost_by_layer: IntArray
    bytes_to_load: FloatArray
    bytes_beyond: FloatArray
    free_bytes: FloatArray
    lost: tuple[LostExpert, ...]

    @property
    def loads_again(self) -> bool:
        """Whether any rank has weights to load."""
        return bool((np.nan_to_num(self.bytes_to_load) > 0).any())


def picture_loss(facts: FailoverFacts, loss: Loss, strategy: FailoverStrategy) -> LossPicture:
    """Work out one loss of these facts again, with every rank and layer of it."""
    rows = np.flatnonzero(np.isin(facts.ranks, loss.ranks))
    impact = lose_ranks(
        facts.tokens,
        facts.placement.replicas,
        rows,
        top_k=facts.top_k,
        strategy=strategy,
        bytes_per_expert=facts.bytes_per_expert,
        free_bytes=facts.free_bytes,
    )
    before, after = impact.rank_loads_before.sum(axis=0), impact.rank_loads_after.sum(axis=0)
    mean = float(before.mean()) or 1.0
    nothing = np.zeros(len(facts.ranks))
    reload = impact.reload
    return LossPicture(
        strategy,
        facts.ranks,
        lock(np.isin(facts.ranks, loss.ranks)),
        locked_float64(before / mean),
        locked_float64(after / mean),
        locked_float64(impact.total_growth),
        facts.layers,
        impact.traffic_share_by_layer,
        impact.lost_experts,
        locked_float64(nothing if reload is None else reload.bytes_to_load),
        locked_float64(nothing if reload is None else reload.bytes_beyond),
        facts.free_bytes,
        _lost_experts(facts, impact),
    )


def _lost_experts(facts: FailoverFacts, impact: FailoverImpact) -> tuple[LostExpert, ...]:
    of_layer = np.maximum(facts.tokens.sum(axis=1, keepdims=True), 1)
    shares = np.where(impact.is_lost, facts.tokens / of_layer, -1.0)
    order = np.argsort(-shares, axis=None, kind="stable")[: min(_MOST_EXPERTS, int(impact.is_lost.sum()))]
    rows, experts = np.unravel_index(order, shares.shape)
    return tuple(
        LostExpert(int(facts.layers[row]), int(expert), float(shares[row, expert]))
        for row, expert in zip(rows, experts, strict=True)
    )
