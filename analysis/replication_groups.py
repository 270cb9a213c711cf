"""Expert groups that stay on one node: share groups among nodes, then place within each node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from math import comb, prod
from typing import Final

import numpy as np

from moescope.analysis.placement_score import max_over_mean
from moescope.analysis.replication_counts import minimax_counts
from moescope.analysis.replication_layers import make_problem, name_experts
from moescope.analysis.replication_problem import TimeBudget, sort_load
from moescope.analysis.replication_rules import PlanRules
from moescope.analysis.replication_search import HARD, solve
from moescope.analysis.replication_slots import Room
from moescope.schemas.errors import PlanError
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import EMPTY_SLOT

_MOST_SPLITS: Final = 3_000
"""Ways to share groups among nodes that are all looked at; beyond, they are placed as experts are."""
_TRIED_SPLITS: Final = 4
"""The lightest heaviest node is not always the one whose experts place best."""


def place_by_node(
    load: FloatArray, rules: PlanRules, room: Room, budget: TimeBudget, report: Callable[[int], None]
) -> tuple[IntArray, FloatArray]:
    """Keep expert groups on one node each: int64 ``[layers, slots]``, and the bound, float64 ``[layers]``.

    Raises:
        PlanError: a node without room for its share of the experts.
    """
    layers = len(load)
    by_group = load.reshape(layers, rules.expert_groups, -1).sum(axis=2)
    splits, bound = share_groups(by_group, rules.nodes, budget)
    bound = np.maximum(bound, _finest(load, rules, room))
    table = np.full((layers, int(room.capacity.max()) * rules.ranks), EMPTY_SLOT, dtype=np.int64)
    ratio = np.full(layers, np.inf)
    rows = np.arange(layers)
    for node_of_group in splits:
        part = Room(room.capacity[rows], room.copies[rows])
        placed, reached = _place_split(load[rows], rules, part, node_of_group[rows], (budget, report))
        better = reached < ratio[rows]
        table[rows[better]], ratio[rows[better]] = placed[better], reached[better]
        rows = np.nonzero(ratio > bound * (1 + HARD))[0]
        if not len(rows) or budget.is_over:
            break
    return table, bound


def _finest(load: FloatArray, rules: PlanRules, room: Room) -> FloatArray:
    """Bound a layer by each group alone with all spare slots of its node: float64 ``[layers]``."""
    layers, experts = load.shape
    slots = room.capacity.reshape(layers, rules.nodes, -1).sum(axis=2).max(axis=1)
    spare = np.repeat(slots - experts // rules.nodes, rules.expert_groups)
    group = load.reshape(layers * rules.expert_groups, -1)
    scale = np.repeat(load.sum(axis=1) / rules.ranks, rules.expert_groups)
    scaled, _, _ = sort_load(group, scale, rules.ranks_per_node)
    counts = minimax_counts(scaled, group.shape[1] + spare, rules.ranks_per_node)
    finest: FloatArray = (scaled / counts).max(axis=1).reshape(layers, -1).max(axis=1)
    return finest


def _place_split(
    load: FloatArray,
    rules: PlanRules,
    room: Room,
    node_of_group: IntArray,
    running: tuple[TimeBudget, Callable[[int], None]],
) -> tuple[IntArray, FloatArray]:
    """Place every node's experts on its ranks: the slots, and max / mean, float64 ``[layers]``."""
    layers, experts = load.shape
    groups = np.argsort(node_of_group, axis=1, kind="stable")  # node after node, as many each
    size = experts // rules.expert_groups
    ids = (groups[:, :, None] * size + np.arange(size)).reshape(layers * rules.nodes, -1)
    part = np.take_along_axis(np.repeat(load, rules.nodes, axis=0), ids, axis=1)
    scale = np.repeat(load.sum(axis=1) / rules.ranks, rules.nodes)
    problem = make_problem(part, scale, _share_room(room, rules, part))
    # Only the heaviest node of a layer has to come near its bound.
    by_layer = problem.bound.reshape(layers, rules.nodes)
    by_layer[:] = np.maximum(by_layer, part.sum(axis=1).reshape(layers, -1) * _per_rank(load, rules))
    by_layer[:] = by_layer.max(axis=1, keepdims=True)
    packing = solve(problem, *running, may_leave_out=not rules.uses_every_copy)
    named = np.concatenate([ids, np.full((len(ids), 1), EMPTY_SLOT)], axis=1)
    table = np.take_along_axis(named, name_experts(problem, packing), axis=1)
    return table.reshape(layers, -1), max_over_mean(packing.load.reshape(layers, -1))


def _per_rank(load: FloatArray, rules: PlanRules) -> FloatArray:
    """What turns a node's load into its mean rank load over the layer's: float64 ``[layers, 1]``."""
    total = load.sum(axis=1, keepdims=True)
    per_rank: FloatArray = np.divide(rules.nodes, total, out=np.zeros_like(total), where=total > 0)
    return per_rank


def _share_room(room: Room, rules: PlanRules, load: FloatArray) -> Room:
    """Share a layer's copies among its nodes alike; what does not divide goes to the nodes with most load."""
    layers, ranks = room.capacity.shape
    capacity = room.capacity.reshape(layers * rules.nodes, ranks // rules.nodes)
    slots, experts = capacity.sum(axis=1), load.shape[1]
    if (slots < experts).any():
        raise PlanError(
            f"Node {int(slots.argmin()) % rules.nodes} has {int(slots.min())} slots in a layer for {experts} "
            "experts of its groups; give its ranks more slots."
        )
    base, extra = np.divmod(room.copies, rules.nodes)
    by_load = np.argsort(-load.sum(axis=1).reshape(layers, -1), axis=1, kind="stable").argsort(axis=1)
    copies = (base[:, None] + (by_load < extra[:, None])).ravel()
    return Room(capacity, np.minimum(copies, slots))


def share_groups(load: FloatArray, nodes: int, budget: TimeBudget) -> tuple[list[IntArray], FloatArray]:
    """Share expert groups among nodes, as many each, so that the heaviest node is as light as it can be.

    Args:
        load: float64 ``[layers, groups]``.
        nodes: that divide the groups.
        budget: of the search where there are too many ways to look at them all.

    Returns:
        The best ways for each layer, the best first: int64 ``[layers, groups]``, the node of each group. And
        what no way can be below, as heaviest over mean node: float64 ``[layers]``.
    """
    layers, groups = load.shape
    each = groups // nodes
    node = np.broadcast_to(np.repeat(np.arange(nodes), each), load.shape)
    scale = load.sum(axis=1) / nodes
    ways = prod(comb(left - 1, each - 1) for left in range(groups, 0, -each))
    if ways <= _MOST_SPLITS:
        splits = np.array(list(_splits(tuple(range(groups)), each)))  # [ways, nodes, groups of a node]
        heaviest = load[:, splits].sum(axis=3).max(axis=2)
        order = np.argsort(heaviest, axis=1, kind="stable")[:, :_TRIED_SPLITS]
        tables = [splits[order[:, rank]].reshape(layers, -1) for rank in range(order.shape[1])]
        bound = np.divide(heaviest.min(axis=1), scale, out=np.ones(layers), where=scale > 0)
    else:
        room = Room(np.full((layers, nodes), each, dtype=np.int64), np.full(layers, groups, dtype=np.int64))
        problem = make_problem(load, scale, room)
        tables, bound = [name_experts(problem, solve(problem, budget, lambda _: None))], problem.bound
    shared = [np.empty(load.shape, dtype=np.int64) for _ in tables]
    for table, split in zip(tables, shared, strict=True):
        np.put_along_axis(split, table, node, axis=1)
    return shared, bound


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
