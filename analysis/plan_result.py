"""A replication plan and what it does: the numbers that its report prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from moescope.analysis.backtest import Backtest
from moescope.analysis.imbalance import BoolArray
from moescope.analysis.placement_score import balance_ratio, rank_loads
from moescope.analysis.plan_advice import PlanAdvice, PlanEffect, advise, find_uneven
from moescope.analysis.replan_slots import find_moves
from moescope.analysis.replication_coverage import NodeCoverage
from moescope.analysis.uneven_split import UnevenSplit
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import EMPTY_SLOT, Placement


@dataclass(frozen=True, slots=True)
class SmallChange:
    """What moving a few experts of the current placement would do instead.

    Attributes:
        moved_share: copies moved / physical experts.
        ratio: float64 ``[layers]``, max / mean on the same load.
    """

    moved: int
    moved_share: float
    ratio: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanResult:
    """A plan and everything that there is to say about it.

    Attributes:
        source: whose load it is, and of when.
        planned_for: ``forecast`` of the next window, or ``sum`` of all windows.
        windows: with load.
        layers: int64 ``[layers]``, the model's layer index of each row.
        tokens: float64 ``[layers, experts]``, the load that was planned for; ratios are of it.
        before: what is there now; in order and without redundant experts where ``is_before_known`` is false.
        placement: the plan.
        bound: float64 ``[layers]``, what no placement under the rules could go below.
        noise_floor: float64 ``[layers]``; None where the loads are no counts.
        design_effect: float64 ``[layers]``, D of the counts; NaN where it is not known.
        bytes_per_expert: float64 ``[layers]``; None where it is not known.
        nodes: nodes that coverage is counted over; 1 where that is not known.
        notes: sentences that stand at the end.
    """

    source: str
    planned_for: str
    windows: int
    layers: IntArray
    tokens: FloatArray
    before: Placement
    is_before_known: bool
    placement: Placement
    bound: FloatArray
    noise_floor: FloatArray | None
    design_effect: FloatArray
    bytes_per_expert: FloatArray | None
    coverage_before: NodeCoverage
    coverage: NodeCoverage
    nodes: int
    backtest: Backtest | None = None
    uneven: UnevenSplit | None = None
    small_change: SmallChange | None = None
    notes: tuple[str, ...] = field(default=())

    @cached_property
    def ratio_before(self) -> FloatArray:
        """Max / mean of each layer over the ranks as it is: float64 ``[layers]``."""
        return balance_ratio(self.tokens, self.before)

    @cached_property
    def ratio_after(self) -> FloatArray:
        """Max / mean of each layer with the plan: float64 ``[layers]``."""
        return balance_ratio(self.tokens, self.placement)

    @cached_property
    def rank_load_before(self) -> FloatArray:
        """Load of each rank as it is, in multiples of its layer's mean: float64 ``[layers, ranks]``."""
        return _times_mean(rank_loads(self.tokens, self.before))

    @cached_property
    def rank_load_after(self) -> FloatArray:
        """Load of each rank with the plan, in multiples of its layer's mean: float64 ``[layers, ranks]``."""
        return _times_mean(rank_loads(self.tokens, self.placement))

    @cached_property
    def moved(self) -> IntArray:
        """Copies that each rank must receive: int64 ``[layers, ranks]``."""
        moved: IntArray = find_moves(self.before, self.placement).sum(axis=2)
        return moved

    @cached_property
    def moved_bytes_per_rank(self) -> FloatArray | None:
        """Bytes that each rank must receive: float64 ``[ranks]``."""
        return None if self.bytes_per_expert is None else self.bytes_per_expert @ self.moved

    @property
    def moved_share(self) -> float:
        """Copies that move / copies that the plan has."""
        return float(self.moved.sum() / (self.placement.physical_to_logical_map != EMPTY_SLOT).sum())

    @property
    def redundant_experts(self) -> int:
        """Copies of a layer beyond one per expert, the most of any layer."""
        held = (self.placement.physical_to_logical_map != EMPTY_SLOT).sum(axis=1)
        return int(held.max(initial=self.placement.num_experts)) - self.placement.num_experts

    @cached_property
    def effect(self) -> PlanEffect:
        """What the plan does, as far as it can be told."""
        sizes = self.moved_bytes_per_rank
        return PlanEffect(
            tokens=self.tokens,
            ratio_before=self.ratio_before,
            ratio_after=self.ratio_after,
            bound=self.bound,
            noise_floor=self.noise_floor,
            is_uneven=self.is_uneven,
            ranks=self.placement.ep_size,
            redundant_experts=self.redundant_experts,
            moved=int(self.moved.sum()),
            moved_bytes=None if sizes is None else float(sizes.sum()),
            backtest=self.backtest,
            small_moved=0 if self.small_change is None else self.small_change.moved,
            small_ratio=None if self.small_change is None else self.small_change.ratio,
        )

    @cached_property
    def advice(self) -> PlanAdvice:
        """What to do."""
        return advise(self.effect)

    @cached_property
    def is_uneven(self) -> BoolArray:
        """Layers whose ranks differ by more than chance before the plan: bool ``[layers]``."""
        if self.noise_floor is None:
            return np.ones(len(self.layers), dtype=np.bool_)
        return find_uneven(rank_loads(self.tokens, self.before), self.design_effect)

    def memory_per_rank(self, placement: Placement) -> FloatArray | None:
        """Bytes of the experts on each rank, all layers together: float64 ``[ranks]``."""
        if self.bytes_per_expert is None:
            return None
        held = placement.replicas_per_rank_layer_expert().sum(axis=2)
        memory: FloatArray = held @ self.bytes_per_expert
        return memory


def _times_mean(loads: FloatArray) -> FloatArray:
    """Each layer's loads over their mean; 1 in a layer without load."""
    mean = loads.mean(axis=1, keepdims=True)
    ratios: FloatArray = np.divide(loads, mean, out=np.ones(loads.shape), where=mean > 0)
    return ratios
