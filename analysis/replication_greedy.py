"""Place copies one by one, the heaviest first, each on the lightest rank: where refinement starts.

These are the counts and the order of DeepSeek's EPLB and of the engines' versions of it. Wherever their plan
keeps the copies of an expert apart, this one is the same; refined, it is never worse on any layer.
"""

from __future__ import annotations

import numpy as np

from moescope.analysis.replication_packing import CLOSED_SLOT, Packing, weigh
from moescope.analysis.replication_problem import Problem
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import EMPTY_SLOT


def pack_greedily(problem: Problem) -> Packing:
    """Place minimax counts, the heaviest copy first, on the lightest rank that may have it."""
    counts = greedy_counts(problem)
    raw_size = problem.raw / counts
    order = np.argsort(-raw_size, axis=1, kind="stable")
    repeats = np.take_along_axis(counts, order, axis=1)
    total = repeats.sum(axis=1)
    items = np.full((len(order), int(total.max())), EMPTY_SLOT, dtype=np.int64)
    items[np.arange(items.shape[1]) < total[:, None]] = np.repeat(order.ravel(), repeats.ravel())
    size = np.take_along_axis(raw_size, items, axis=1)
    experts = np.full((*problem.capacity.shape, int(problem.capacity.max())), EMPTY_SLOT, dtype=np.int64)
    experts[np.arange(experts.shape[2]) >= problem.capacity[:, :, None]] = CLOSED_SLOT
    _place(np.ascontiguousarray(items.T), np.ascontiguousarray(size.T), problem, experts)
    return weigh(experts, problem.load)


def greedy_counts(problem: Problem) -> IntArray:
    """Minimax counts; where several experts tie for the last copies, the first of the model get them."""
    counts = problem.counts.copy()
    before = np.where(counts > 1, problem.raw / np.maximum(counts - 1, 1), np.inf)
    after = np.where(counts < problem.ranks, problem.raw / counts, -1.0)
    last = before.min(axis=1)
    for row in np.nonzero(last == after.max(axis=1))[0]:
        got, missed = before[row] == last[row], after[row] == last[row]
        tied = np.nonzero(got | missed)[0]
        tied = tied[np.argsort(problem.order[row, tied])]
        counts[row, got] -= 1
        counts[row, tied[: int(got.sum())]] += 1
    return counts


def _place(items: IntArray, size: FloatArray, problem: Problem, experts: IntArray) -> None:
    """Fill ``experts`` in place from copies ``[turn, rows]`` and what each of them weighs.

    Copies of an expert follow each other, so a rank that has one already is known by what it got last.
    """
    rows, ranks, width = experts.shape
    load = np.where(problem.capacity > 0, 0.0, np.inf)
    flat_load, flat_experts = load.reshape(-1), experts.reshape(-1)
    next_slot = np.arange(0, rows * ranks * width, width) + problem.capacity.ravel() - 1
    newest = np.full(rows * ranks, EMPTY_SLOT, dtype=np.int64)
    first = np.arange(rows) * ranks
    is_even = bool((problem.capacity == width).all())
    same = np.zeros(len(items) + 1, dtype=bool)
    same[1:-1] = ((items[1:] == items[:-1]) & (items[1:] >= 0)).any(axis=1)
    ends_early = bool((items < 0).any())
    for turn, (item, weight) in enumerate(zip(items, size, strict=True)):
        at = load.argmin(axis=1)
        at += first
        is_tight = same[turn] and _avoid_twins(at, item, load, newest)
        if is_tight or ends_early:
            fits = np.isfinite(flat_load[at]) & (newest[at] != item) & (item >= 0)
            at, item, weight = at[fits], item[fits], weight[fits]  # noqa: PLW2901 - what has no rank stays out
        if same[turn] or same[turn + 1]:
            newest[at] = item
        slot, now = next_slot[at], flat_load[at]
        now += weight
        flat_experts[slot] = item
        if turn >= width - 1 or not is_even:
            now[slot % width == 0] = np.inf
        next_slot[at] = slot - 1
        flat_load[at] = now


def _avoid_twins(at: IntArray, item: IntArray, load: FloatArray, newest: IntArray) -> bool:
    """Choose the lightest rank without a copy of the expert where the lightest has one; True where it had."""
    twins = np.nonzero(newest[at] == item)[0]
    if len(twins):
        ranks = load.shape[1]
        holds = newest.reshape(-1, ranks)[twins] == item[twins, None]
        at[twins] = twins * ranks + np.where(holds, np.inf, load[twins]).argmin(axis=1)
    return bool(len(twins))
