"""Layers as rows to solve: all ranks of a layer at once, or node by node where expert groups bind experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from math import comb, prod
from typing import Final

import numpy as np

from moescope.analysis.replication_bounds import lower_bounds
from moescope.analysis.replication_counts import minimax_counts
from moescope.analysis.replication_packing import Packing
from moescope.analysis.replication_problem import Problem, TimeBudget, sort_load
from moescope.analysis.replication_rules import PlanRules
from moescope.analysis.replication_search import solve
from moescope.analysis.replication_slots import Room
from moescope.schemas.errors import PlanError
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import EMPTY_SLOT

_MOST_SPLITS: Final = 3_000
"""Ways to share groups among nodes that are all looked at; beyond, they are placed as experts are."""


def make_problem(load: FloatArray, scale: FloatArray, room: Room) -> Problem:
    """Prepare rows: sorted, scaled by the mean rank load of their layer, and bounded."""
    scaled, raw, order = sort_load(load, scale)
    counts = minimax_counts(scaled, room.copies, room.capacity.shape[1])
    bound = lower_bounds(scaled, counts, room.capacity, room.copies)
    return Problem(scaled, raw, order, room.capacity, room.copies, counts, bound)


def place_freely(
    load: FloatArray, rules: PlanRules, room: Room, budget: TimeBudget, report: Callable[[int], None]
) -> tuple[IntArray, FloatArray]:
    """Place every expert on any rank: int64 ``[layers, slots]``, and the bound, float64 ``[layers]``."""
    problem = make_problem(load, load.sum(axis=1) / rules.ranks, room)
    return name_experts(problem, solve(problem, budget, report)), problem.bound


def name_experts(problem: Problem, packing: Packing) -> IntArray:
    """Turn places in the falling order into expert ids, and slots that do not exist into empty ones."""
    rows = len(problem.order)
    named = np.concatenate([problem.order, np.full((rows, 2), EMPTY_SLOT)], axis=1)
    return np.take_along_axis(named, packing.experts.reshape(rows, -1), axis=1)


def place_by_node(
    load: FloatArray, rules: PlanRules, room: Room, budget: TimeBudget, report: Callable[[int], None]
) -> tuple[IntArray, FloatArray]:
    """Keep expert groups together on one node: share groups among nodes, then place within each node.

    Raises:
        PlanError: a node without room for its share of the experts.
    """
    layers, experts = load.shape
    by_group = load.reshape(layers, rules.expert_groups, -1)
    node_of_group, bound = share_groups(by_group.sum(axis=2), rules.nodes, budget)
    groups = np.argsort(node_of_group, axis=1, kind="stable")  # node after node, as many each
    size = experts // rules.expert_groups
    ids = (groups[:, :, None] * size + np.arange(size)).reshape(layers * rules.nodes, -1)
    part = np.take_along_axis(np.repeat(load, rules.nodes, axis=0), ids, axis=1)
    scale = np.repeat(load.sum(axis=1) / rules.ranks, rules.nodes)
    problem = make_problem(part, scale, _share_room(room, rules, part.sum(axis=1), part.shape[1]))
    # Only the heaviest node of a layer has to come near its bound.
    by_layer = problem.bound.reshape(layers, rules.nodes)
    by_layer[:] = by_layer.max(axis=1, keepdims=True)
    packing = solve(problem, budget, report)
    table = np.take_along_axis(
        np.concatenate([ids, np.full((len(ids), 1), EMPTY_SLOT)], axis=1),
        name_experts(problem, packing),
        axis=1,
    )
    scaled, _, _ = sort_load(load, load.sum(axis=1) / rules.ranks)
    most = np.minimum(room.copies, experts * rules.ranks_per_node)
    finest = (scaled / minimax_counts(scaled, most, rules.ranks_per_node)).max(axis=1)
    return table.reshape(layers, -1), np.maximum(bound, finest)


def _share_room(room: Room, rules: PlanRules, load: FloatArray, experts: int) -> Room:
    """Share a layer's copies among its nodes alike; what does not divide goes to the nodes with most load."""
    layers, ranks = room.capacity.shape
    capacity = room.capacity.reshape(layers * rules.nodes, ranks // rules.nodes)
    short = capacity.sum(axis=1) < experts
    if short.any():
        raise PlanError(
            f"Node {int(np.nonzero(short)[0][0]) % rules.nodes} has {int(capacity.sum(axis=1).min())} slots "
            f"in a layer for {experts} experts of its groups; give its ranks more slots."
        )
    base, extra = np.divmod(room.copies, rules.nodes)
    by_load = np.argsort(np.argsort(-load.reshape(layers, rules.nodes), axis=1, kind="stable"), axis=1)
    copies = (base[:, None] + (by_load < extra[:, None])).ravel()
    return Room(capacity, np.minimum(copies, capacity.sum(axis=1)))


def share_groups(load: FloatArray, nodes: int, budget: TimeBudget) -> tuple[IntArray, FloatArray]:
    """Share expert groups among nodes, as many each, so that the heaviest node is as light as it can be.

    Args:
        load: float64 ``[layers, groups]``.
        nodes: that divide the groups.
        budget: of the search where there are too many ways to look at them all.

    Returns:
        int64 ``[layers, groups]``, the node of each group, and float64 ``[layers]``, what no sharing can be
        below, as heaviest over mean.
    """
    layers, groups = load.shape
    each = groups // nodes
    scale = load.sum(axis=1) / nodes
    ways = prod(comb(left - 1, each - 1) for left in range(groups, 0, -each))
    if ways <= _MOST_SPLITS:
        splits = np.array(list(_splits(tuple(range(groups)), each)))  # [ways, nodes, groups of a node]
        heaviest = load[:, splits].sum(axis=3).max(axis=2)
        best = heaviest.argmin(axis=1)
        node = np.empty((layers, groups), dtype=np.int64)
        np.put_along_axis(
            node, splits[best].reshape(layers, -1), np.repeat(np.arange(nodes), each)[None, :], axis=1
        )
        at_best = heaviest[np.arange(layers), best]
        return node, np.divide(at_best, scale, out=np.ones(layers), where=scale > 0)
    copies = np.full(layers, groups, dtype=np.int64)
    problem = make_problem(load, scale, Room(np.full((layers, nodes), each, dtype=np.int64), copies))
    table = name_experts(problem, solve(problem, budget, lambda _: None))
    node = np.empty_like(table)
    np.put_along_axis(node, table, np.repeat(np.arange(nodes), each)[None, :], axis=1)
    return node, problem.bound


def _splits(groups: tuple[int, ...], each: int) -> Iterator[list[tuple[int, ...]]]:
    """Every way to split groups into sets of ``each``, whatever their order."""
    if not groups:
        yield []
        return
    first, rest = groups[0], groups[1:]
    for others in combinations(rest, each - 1):
        left = tuple(group for group in rest if group not in others)
        for split in _splits(left, each):
            yield [(first, *others), *split]
