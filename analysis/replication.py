"""Plan how many copies each expert gets and which rank holds them, so that ranks compute alike.

A plan is as good as the load that it was made from: what it brings on the next window is for
:mod:`moescope.analysis.backtest` to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from moescope.analysis.frozen import lock
from moescope.analysis.placement_score import balance_ratio
from moescope.analysis.replication_cover import place_covering
from moescope.analysis.replication_coverage import NodeCoverage, measure_coverage
from moescope.analysis.replication_groups import place_by_node
from moescope.analysis.replication_layers import place_freely
from moescope.analysis.replication_problem import TimeBudget
from moescope.analysis.replication_rules import CoverNodes, PlanRules
from moescope.analysis.replication_slots import find_room
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import EMPTY_SLOT, Placement

__all__ = ["AT_BOUND", "CoverNodes", "NodeCoverage", "PlanRules", "ReplicationPlan", "plan_replication"]

AT_BOUND: Final = 5e-4
"""A layer within this of its bound is at its bound: nobody measures less."""


_LAST: Final = np.iinfo(np.int64).max


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
    budget = TimeBudget(rules.time_budget_seconds)

    def report(hard: int) -> None:
        if progress is not None:
            progress(layers - min(hard, layers), layers)

    place = place_freely
    if rules.is_hierarchical:
        place = place_by_node
    elif rules.cover_nodes is not CoverNodes.NONE:
        place = place_covering
    table, bound = place(load, rules, room, budget, report)
    report(0)
    placement = Placement(_tidy(table, rules.ranks), rules.ranks, experts)
    return ReplicationPlan(
        placement,
        rules,
        lock(balance_ratio(load, placement)),
        lock(np.where(load.any(axis=1), bound, 1.0)),
        measure_coverage(load, placement, nodes=rules.nodes, hot_ratio=rules.hot_expert_ratio),
        budget.is_cut_short,
    )


def _tidy(table: IntArray, ranks: int) -> IntArray:
    """Sort the slots of each rank: experts rising, empty slots last; read-only."""
    by_rank = table.reshape(len(table), ranks, -1).copy()
    by_rank[by_rank == EMPTY_SLOT] = _LAST
    by_rank.sort(axis=2)
    by_rank[by_rank == _LAST] = EMPTY_SLOT
    tidy: IntArray = lock(by_rank.reshape(table.shape))
    return tidy
