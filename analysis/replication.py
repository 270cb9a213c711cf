"""Plan how many copies each expert gets and which rank holds them, so that ranks compute alike.

A plan is as good as the load that it was made from: what it brings on the next window is for
:mod:`moescope.analysis.backtest` to say.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from moescope.analysis.frozen import lock
from moescope.analysis.placement_score import balance_ratio
from moescope.analysis.replication_bounds import lower_bounds
from moescope.analysis.replication_counts import minimax_counts
from moescope.analysis.replication_coverage import NodeCoverage, measure_coverage
from moescope.analysis.replication_packing import pack_rounds
from moescope.analysis.replication_refine import refine
from moescope.analysis.replication_rules import CoverNodes, PlanRules
from moescope.analysis.replication_slots import find_room
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import EMPTY_SLOT, Placement

__all__ = ["AT_BOUND", "CoverNodes", "NodeCoverage", "PlanRules", "ReplicationPlan", "plan_replication"]

AT_BOUND: Final = 5e-4
"""A layer within this of its bound is at its bound: nobody measures less."""


@dataclass(frozen=True, slots=True, eq=False)
class ReplicationPlan:
    """Where copies go, and what the ranks would compute if the load stayed as it was.

    Attributes:
        placement: the plan; never two copies of an expert on one rank.
        rules: what it keeps.
        ratio: float64 ``[layers]``, max / mean over ranks of the load it was made from; read-only.
        bound: float64 ``[layers]``, what no placement under these rules could go below; read-only.
        coverage: what is held in more than one place.
        is_cut_short: whether the time budget ended the search; the same input may then give another plan.
    """

    placement: Placement
    rules: PlanRules
    ratio: FloatArray
    bound: FloatArray
    coverage: NodeCoverage
    is_cut_short: bool = False

    @property
    def is_at_bound(self) -> npt.NDArray[np.bool_]:
        """Layers that no other placement could improve by more than :data:`AT_BOUND`: bool ``[layers]``."""
        at_bound: npt.NDArray[np.bool_] = self.ratio <= self.bound * (1 + AT_BOUND)
        return at_bound


def plan_replication(
    tokens_per_layer_expert: Any,
    rules: PlanRules,
    progress: Callable[[int, int], None] | None = None,
) -> ReplicationPlan:
    """Plan the copies of every layer.

    Args:
        tokens_per_layer_expert: any numeric dtype, ``[layers, experts]``: what to balance; a forecast, or the
            tokens of a window.
        rules: what the plan may use and has to keep.
        progress: called with layers that are done and layers in all.

    Raises:
        PlanError: rules that no plan of this model can keep.
    """
    load = rules.load_of(tokens_per_layer_expert)
    layers, experts = load.shape
    room = find_room(rules, layers, experts)
    started = time.monotonic()
    order = np.argsort(-load, axis=1, kind="stable")
    scaled = _scale(np.take_along_axis(load, order, axis=1), rules.ranks)
    counts = minimax_counts(scaled, room.copies, rules.ranks)
    bound = lower_bounds(scaled, counts, room.capacity, room.copies)
    packing = pack_rounds(scaled, counts, room.capacity)
    refine(packing, bound * (1 + 1e-4))
    if progress is not None:
        progress(layers, layers)
    placement = Placement(_name(packing.experts, order), rules.ranks, experts)
    ratio = balance_ratio(load, placement)
    return ReplicationPlan(
        placement,
        rules,
        lock(ratio),
        lock(np.where(load.any(axis=1), bound, 1.0)),
        measure_coverage(load, placement, nodes=rules.nodes, hot_ratio=rules.hot_expert_ratio),
        time.monotonic() - started > rules.time_budget_seconds,
    )


def _scale(load: FloatArray, ranks: int) -> FloatArray:
    """Scale every layer to a mean rank load of 1; a layer without load gets the same for every expert."""
    total = load.sum(axis=1, keepdims=True)
    scaled: FloatArray = np.where(total > 0, load / np.where(total > 0, total, 1), 1 / load.shape[1]) * ranks
    return scaled


def _name(experts: IntArray, order: IntArray) -> IntArray:
    """Turn positions in a falling order into expert ids, and slots that do not exist into empty ones."""
    layers = len(experts)
    named = np.concatenate([order, np.full((layers, 2), EMPTY_SLOT)], axis=1)
    table: IntArray = lock(np.take_along_axis(named, experts.reshape(layers, -1), axis=1))
    return table
