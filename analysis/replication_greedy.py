"""The plan that the published load balancer makes, as a candidate: ours is then never worse on any layer.

DeepSeek's EPLB and the engines' versions of it give the next copy to the largest load per copy, then place
the heaviest copy on the lightest rank that has a free slot. They do not keep copies of an expert apart: where
two meet on a rank, one is exchanged.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from moescope.analysis.replication_counts import minimax_counts
from moescope.analysis.replication_packing import Packing
from moescope.analysis.replication_problem import Problem
from moescope.schemas.records import FloatArray, IntArray

_TIE: Final = 1e-9
_WORTH: Final = 1 - 1e-12


def improve_by_greedy(problem: Problem, packing: Packing) -> None:
    """Take the greedy plan in those rows where it is better; in place."""
    usable = packing.worst > problem.bound * (1 + 1e-9)
    usable &= (problem.capacity == problem.capacity[:, :1]).all(axis=1)
    usable &= problem.copies == problem.capacity.sum(axis=1)
    rows = np.nonzero(usable)[0]
    if not len(rows):
        return
    part = problem.take(rows)
    counts = _greedy_counts(part)
    items, ranks = _place_greedily(part, counts)
    size = np.take_along_axis(part.load / counts, items, axis=1)
    width = int(part.capacity[0, 0])
    worst = np.zeros((len(rows), part.ranks))
    np.add.at(worst, (np.arange(len(rows))[:, None], ranks), size)
    better = np.nonzero(worst.max(axis=1) < packing.worst[rows] * _WORTH)[0]
    if not len(better):
        return
    by_rank = np.argsort(ranks[better], axis=1, kind="stable")
    shape = (len(better), part.ranks, width)
    experts = np.take_along_axis(items[better], by_rank, axis=1).reshape(shape)
    piece = np.take_along_axis(size[better], by_rank, axis=1).reshape(shape)
    greedy = Packing(experts, piece, piece.sum(axis=2))
    distinct = _part_twins(greedy)
    packing.keep_better(rows[better[distinct]], greedy.take(distinct))


def _greedy_counts(problem: Problem) -> IntArray:
    """Minimax counts; where several experts tie for the last copies, the first of the model gets them."""
    counts = minimax_counts(problem.raw, problem.copies, problem.ranks)
    before = np.where(counts > 1, problem.raw / np.maximum(counts - 1, 1), np.inf).min(axis=1)
    after = np.where(counts < problem.ranks, problem.raw / counts, 0.0).max(axis=1)
    for row in np.nonzero(np.abs(before - after) <= _TIE * after)[0]:
        order = problem.order[row]
        load = np.empty_like(problem.raw[row])
        load[order] = problem.raw[row]
        given = np.ones(len(load), dtype=np.int64)
        for _ in range(int(problem.copies[row]) - len(load)):
            given[np.argmax(np.where(given < problem.ranks, load / given, -1.0))] += 1
        counts[row] = given[order]
    return counts


def _place_greedily(problem: Problem, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Place the heaviest copy on the lightest rank with a slot: experts and ranks, ``[rows, copies]``."""
    rows, ranks = problem.capacity.shape
    slots = int(problem.capacity[0, 0])
    raw_size = problem.raw / counts
    order = np.argsort(-raw_size, axis=1, kind="stable")
    repeats = np.take_along_axis(counts, order, axis=1)
    items = np.repeat(order.ravel(), repeats.ravel()).reshape(rows, -1)
    size = np.ascontiguousarray(np.take_along_axis(raw_size, items, axis=1).T)
    load = np.zeros((rows, ranks))
    flat_load, held = load.reshape(-1), np.zeros(rows * ranks, dtype=np.int64)
    first = np.arange(rows) * ranks
    chosen = np.empty(size.shape, dtype=np.int64)
    for turn, weight in enumerate(size):
        rank = load.argmin(axis=1)
        chosen[turn] = rank
        at = first + rank
        flat_load[at] += weight
        held[at] += 1
        if turn >= slots - 1:
            flat_load[at[held[at] == slots]] = np.inf
    return items, chosen.T


def _part_twins(packing: Packing) -> npt.NDArray[np.bool_]:
    """Exchange copies that share a rank with their like, in place; False for rows where none can be found."""
    in_order = np.sort(packing.experts, axis=2)
    twins = (in_order[:, :, 1:] == in_order[:, :, :-1]).any(axis=(1, 2))
    distinct = np.ones(len(twins), dtype=bool)
    for row in np.nonzero(twins)[0]:
        distinct[row] = _part_row(packing.experts[row], packing.piece[row])
        packing.load[row] = packing.piece[row].sum(axis=1)
    return distinct


def _part_row(experts: IntArray, piece: FloatArray) -> bool:
    """Exchange each twin with the copy of the nearest load that can change places with it."""
    for rank in range(len(experts)):
        held: set[int] = set()
        for slot in range(experts.shape[1]):
            expert = int(experts[rank, slot])
            if expert in held and not _exchange_twin(experts, piece, rank, slot):
                return False
            held.add(int(experts[rank, slot]))
    return True


def _exchange_twin(experts: IntArray, piece: FloatArray, rank: int, slot: int) -> bool:
    free = ~(experts == experts[rank, slot]).any(axis=1)
    new = ~np.isin(experts, experts[rank])
    miss = np.where(free[:, None] & new, np.abs(piece - piece[rank, slot]), np.inf)
    other = np.unravel_index(int(miss.argmin()), miss.shape)
    if not np.isfinite(miss[other]):
        return False
    for array in (experts, piece):
        array[rank, slot], array[other] = array[other], array[rank, slot]
    return True
