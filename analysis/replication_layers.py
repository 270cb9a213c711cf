"""Layers as rows to solve, where every expert may be on any rank."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from moescope.analysis.replication_bounds import lower_bounds
from moescope.analysis.replication_counts import minimax_counts
from moescope.analysis.replication_packing import Packing
from moescope.analysis.replication_problem import Problem, TimeBudget, sort_load
from moescope.analysis.replication_rules import PlanRules
from moescope.analysis.replication_search import solve
from moescope.analysis.replication_slots import Room
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import EMPTY_SLOT


def make_problem(load: FloatArray, scale: FloatArray, room: Room) -> Problem:
    """Prepare rows: sorted, scaled by the mean rank load of their layer, and bounded."""
    ranks = room.capacity.shape[1]
    scaled, raw, order = sort_load(load, scale, ranks)
    counts = minimax_counts(scaled, room.copies, ranks)
    bound = lower_bounds(scaled, counts, room.capacity, room.copies)
    bound[scale <= 0] = np.inf  # nothing to balance
    return Problem(scaled, raw, order, room.capacity, room.copies, counts, bound)


def place_freely(
    load: FloatArray, rules: PlanRules, room: Room, budget: TimeBudget, report: Callable[[int], None]
) -> tuple[IntArray, FloatArray]:
    """Place every expert on any rank: int64 ``[layers, slots]``, and the bound, float64 ``[layers]``."""
    problem = make_problem(load, load.sum(axis=1) / rules.ranks, room)
    return name_experts(
        problem, solve(problem, budget, report, may_leave_out=not rules.uses_every_copy)
    ), problem.bound


def name_experts(problem: Problem, packing: Packing) -> IntArray:
    """Turn places in the falling order into expert ids, and slots that do not exist into empty ones."""
    rows = len(problem.order)
    named = np.concatenate([problem.order, np.full((rows, 2), EMPTY_SLOT)], axis=1)
    return np.take_along_axis(named, packing.experts.reshape(rows, -1), axis=1)
