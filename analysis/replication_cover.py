"""Second copies on another node, with what balance leaves: for experts that no one node's failure takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from moescope.analysis.replication_counts import counts_up_to, minimax_counts
from moescope.analysis.replication_coverage import find_hot
from moescope.analysis.replication_layers import make_problem, name_experts
from moescope.analysis.replication_packing import Packing, pack_rounds
from moescope.analysis.replication_polish import polish
from moescope.analysis.replication_problem import Problem, TimeBudget
from moescope.analysis.replication_refine import refine
from moescope.analysis.replication_rules import CoverNodes, PlanRules
from moescope.analysis.replication_search import GOOD_ENOUGH, HARD, solve
from moescope.analysis.replication_slots import Room
from moescope.schemas.records import FloatArray, IntArray

_PRICE: Final = 2e-3
"""What cover may cost of the balance: less than any window differs from the next."""
_SIZES: Final = (0.6, 0.7, 0.8, 0.9)
"""Of a rank: what balance cuts heavy experts to. Larger ones leave more copies for cover."""


def place_covering(
    load: FloatArray, rules: PlanRules, room: Room, budget: TimeBudget, report: Callable[[int], None]
) -> tuple[IntArray, FloatArray]:
    """Balance first, then cover: int64 ``[layers, slots]``, and the bound, float64 ``[layers]``.

    A layer that cannot have both keeps the balance of a plan without cover, its copies on two nodes as far as
    that goes.
    """
    problem = make_problem(load, load.sum(axis=1) / rules.ranks, room)
    free = solve(problem, budget, report, may_leave_out=not rules.uses_every_copy)
    limit = np.maximum(free.worst, problem.bound) * (1 + _PRICE)
    wanted = np.ones(load.shape, dtype=bool)
    if rules.cover_nodes is CoverNodes.HOT:
        wanted = find_hot(problem.load, rules.hot_expert_ratio)
    covering = free.take(slice(None))
    rows = np.arange(len(load))
    for size in _SIZES:
        part = problem.take(rows)
        counts = cover_counts(part, wanted[rows], size)
        packing = pack_rounds(part.load, counts, part.capacity)
        _even_out(packing, part, rules.ranks_per_node)
        good = packing.worst <= limit[rows]
        covering.put(rows[good], packing.take(good))
        rows = rows[~good]
        if not len(rows) or budget.is_over:
            break
    if len(rows):
        spread = free.take(rows)
        _even_out(spread, problem.take(rows), rules.ranks_per_node)
        good = spread.worst <= limit[rows]
        covering.put(rows[good], spread.take(good))
    return name_experts(problem, covering), problem.bound


def cover_counts(problem: Problem, wanted: npt.NDArray[np.bool_], size: float) -> IntArray:
    """Cut heavy experts to ``size`` of a rank, then give second copies to wanted ones, the heaviest first.

    Where the copies do not suffice for so fine a cut, all of them go to balance.
    """
    load, copies = problem.load, problem.copies
    least = (load / problem.counts).max(axis=1)
    counts = counts_up_to(load, np.maximum(least, size) * (1 + 1e-12), problem.ranks)
    spare = copies - counts.sum(axis=1)
    single = wanted & (counts == 1) & (problem.ranks > 1)
    gets = single & (np.cumsum(single, axis=1) <= spare[:, None])
    fits = spare >= 0
    counts[fits] = minimax_counts(
        load[fits], copies[fits], problem.ranks, counts[fits] + gets[fits].astype(np.int64)
    )
    counts[~fits] = problem.counts[~fits]
    return counts


def _even_out(packing: Packing, problem: Problem, ranks_per_node: int) -> None:
    """Spread copies over nodes, then even the ranks out by what keeps them spread; in place."""
    spread_over_nodes(packing, ranks_per_node)

    def keeps_spread(row: IntArray, expert: IntArray, old: IntArray, new: IntArray) -> npt.NDArray[np.bool_]:
        return stays_on_two_nodes(packing.experts[row], expert, old, new, ranks_per_node=ranks_per_node)

    for target in (problem.bound * (1 + GOOD_ENOUGH), problem.bound * (1 + HARD)):
        refine(packing, target, keeps_rules=keeps_spread)
        polish(packing, target, ranks_per_node=ranks_per_node)


def stays_on_two_nodes(
    experts: IntArray, expert: IntArray, old: IntArray, new: IntArray, *, ranks_per_node: int
) -> npt.NDArray[np.bool_]:
    """Tell whether a copy may move: it is the only one, or another is on another node than the new one.

    Args:
        experts: int64 ``[moves, ranks, slots]``, what the ranks hold before each move.
        expert: int64 ``[moves]``; an empty slot may always move.
        old: int64 ``[moves]``, rank that it leaves.
        new: int64 ``[moves]``, rank that it goes to.
        ranks_per_node: ranks that one node has.
    """
    held = (experts == expert[:, None, None]).any(axis=2)
    held[np.arange(len(held)), old] = False
    node = np.arange(held.shape[1]) // ranks_per_node
    elsewhere = (held & (node != (new // ranks_per_node)[:, None])).any(axis=1)
    may: npt.NDArray[np.bool_] = (
        elsewhere | ~held.any(axis=1) | (old // ranks_per_node == new // ranks_per_node) | (expert < 0)
    )
    return may


def spread_over_nodes(packing: Packing, ranks_per_node: int) -> None:
    """Exchange copies until no expert has several on one node and none elsewhere, where that can be."""
    rows, ranks, slots = packing.experts.shape
    for row in range(rows):
        experts, piece = packing.experts[row], packing.piece[row]
        flat = experts.ravel()
        place = np.arange(ranks * slots) // (slots * ranks_per_node)
        width = int(flat.max()) + 3
        first, last = np.zeros(width, dtype=np.int64), np.zeros(width, dtype=np.int64)
        last[flat + 2], first[flat[::-1] + 2] = place, place[::-1]
        copies = np.bincount(flat + 2, minlength=width)
        for expert in np.nonzero((copies > 1) & (first == last))[0] - 2:
            if expert >= 0:
                _exchange_over_nodes(experts, piece, int(expert), ranks_per_node)
        packing.load[row] = piece.sum(axis=1)


def _exchange_over_nodes(experts: IntArray, piece: FloatArray, expert: int, ranks_per_node: int) -> None:
    """Exchange one copy with the nearest load on another node that may come in its place."""
    held = experts == expert
    rank, slot = (int(axis[-1]) for axis in np.nonzero(held))
    node = np.arange(len(experts)) // ranks_per_node
    if (node[held.any(axis=1)] != node[rank]).any():
        return  # an exchange before has spread it
    usable = (
        (node != node[rank])[:, None] & (experts >= -1) & ~np.isin(experts, experts[rank][experts[rank] >= 0])
    )
    miss = np.where(usable, np.abs(piece - piece[rank, slot]), np.inf)
    for at in np.argsort(miss, axis=None, kind="stable")[: 4 * experts.shape[1]]:
        other = np.unravel_index(int(at), miss.shape)
        if not np.isfinite(miss[other]):
            return
        comes = np.array([experts[other]])
        if stays_on_two_nodes(
            experts[None], comes, np.array([other[0]]), np.array([rank]), ranks_per_node=ranks_per_node
        )[0]:
            for array in (experts, piece):
                array[rank, slot], array[other] = array[other], array[rank, slot]
            return
