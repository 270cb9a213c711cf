"""Solve rows: place minimax counts, even them out, and look for better counts where that is not enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from moescope.analysis.replication_counts import counts_up_to, minimax_counts
from moescope.analysis.replication_evolve import evolve
from moescope.analysis.replication_greedy import pack_greedily
from moescope.analysis.replication_packing import Packing, pack_rounds
from moescope.analysis.replication_polish import polish
from moescope.analysis.replication_problem import Problem, TimeBudget
from moescope.analysis.replication_refine import refine
from moescope.schemas.records import IntArray

GOOD_ENOUGH: Final = 1e-4
"""A row within this of its bound is left alone."""
HARD: Final = 4e-4
"""A row that stays further from its bound is worth a search."""
_FAR: Final = 0.05
"""A row that simple swaps leave further from its bound wants other counts before it is worth finer work."""
_CROWDED: Final = 0.43
"""Two copies of this much of a rank leave too little for what must stand beside them."""
_FEW_SLOTS: Final = 8
"""With so few slots a rank, single swaps find too little; two for two are looked at as well."""
_WORTH_LEAVING_OUT: Final = 5e-3
"""What a layer must gain for copies to stay unused: they are good for safety, and engines fill all slots."""
_CUT_NO_FINER: Final = (1.0, 0.5)
"""Of a rank: where copies may stay unused, experts are cut to this."""
_CANDIDATES: Final = (
    (0.0, np.inf),
    *((size, small) for size in (0.3, 0.5, 0.4, 0.2, 0.6, 0.1, 0.7) for small in (0.5, 1 / 3)),
)


def solve(
    problem: Problem, budget: TimeBudget, progress: Callable[[int], None], *, may_leave_out: bool = True
) -> Packing:
    """Place every row as well as the time allows.

    Args:
        problem: the rows.
        budget: ends the search for better counts.
        progress: called with the number of rows that still want improvement.
        may_leave_out: whether copies may stay unused where that is far better.
    """
    packing = pack_greedily(problem)
    crowded = _crowded_rows(problem, packing)
    if len(crowded):
        part = problem.take(crowded)
        packing.keep_better(crowded, _place(part, joint_counts(part, 0.2, 0.5)))
    _even_out(problem, packing)
    progress(len(hard_rows(problem, packing)))
    for size, small in _CANDIDATES:
        rows = hard_rows(problem, packing)
        rows = rows[problem.copies[rows] > problem.load.shape[1]]
        if not len(rows) or budget.is_over:
            break
        part = problem.take(rows)
        packing.keep_better(rows, _place(part, joint_counts(part, size, small)))
        progress(len(rows))
    _even_out_finely(problem, packing, hard_rows(problem, packing))
    evolve(problem, packing, hard_rows(problem, packing), budget, progress)
    if may_leave_out:
        _leave_out(problem, packing, budget, progress)
    return packing


def _leave_out(
    problem: Problem, packing: Packing, budget: TimeBudget, progress: Callable[[int], None]
) -> None:
    """Use fewer copies where that is far better; in place.

    A copy more can be one too many: two equal experts fill two ranks alike, and with half of one of them on
    each no longer.
    """
    far = packing.worst > problem.bound * (1 + _WORTH_LEAVING_OUT)
    rows = np.nonzero(far & (problem.copies > problem.load.shape[1]))[0]
    if not len(rows) or budget.is_over:
        return
    part, fewer = problem.take(rows), packing.take(rows)
    for size in _CUT_NO_FINER:
        fewer.keep_better(np.arange(len(rows)), _place(part, fewer_counts(part, size)))
    evolve(part, fewer, hard_rows(part, fewer), budget, progress, may_leave_out=True)
    good = fewer.worst * (1 + _WORTH_LEAVING_OUT) < packing.worst[rows]
    packing.put(rows[good], fewer.take(good))


def hard_rows(problem: Problem, packing: Packing) -> IntArray:
    """Rows that are further from their bound than is good enough: int64, increasing."""
    rows: IntArray = np.nonzero(packing.worst > problem.bound * (1 + HARD))[0]
    return rows


def _place(problem: Problem, counts: IntArray) -> Packing:
    packing = pack_rounds(problem.load, counts, problem.capacity)
    _even_out(problem, packing)
    return packing


def _even_out(problem: Problem, packing: Packing) -> None:
    refine(packing, problem.bound * (1 + GOOD_ENOUGH))
    rows = hard_rows(problem, packing)
    _even_out_finely(problem, packing, rows[packing.worst[rows] <= problem.bound[rows] * (1 + _FAR)])


def _even_out_finely(problem: Problem, packing: Packing, rows: IntArray) -> None:
    if not len(rows):
        return
    part, target = packing.take(rows), problem.bound[rows] * (1 + HARD / 2)
    if packing.experts.shape[2] <= _FEW_SLOTS:
        refine(part, target, together=2)
    polish(part, target)
    packing.put(rows, part)


def _crowded_rows(problem: Problem, packing: Packing) -> IntArray:
    """Rows in which more copies than ranks take nearly half a rank each."""
    crowded = (packing.piece > _CROWDED).sum(axis=(1, 2)) > problem.ranks
    crowded &= problem.copies > problem.load.shape[1]
    rows: IntArray = np.nonzero(crowded)[0]
    return rows


def fewer_counts(problem: Problem, size: float) -> IntArray:
    """Cut only what is more than ``size`` of a rank, and leave the other copies unused."""
    least = (problem.load / problem.counts).max(axis=1)
    counts = counts_up_to(problem.load, np.maximum(least, size) * (1 + 1e-12), problem.ranks)
    fits = counts.sum(axis=1) <= problem.copies
    return np.where(fits[:, None], counts, problem.counts)


def joint_counts(problem: Problem, size: float, small: float) -> IntArray:
    """Cut heavy experts less finely than minimax does, and spend the rest on copies that are easy to place.

    Minimax may make more copies of 0.57 of a rank than there are ranks; two on one rank are 1.14. With the
    heavy ones cut to x, between the minimax size m and a whole rank, those of at most ``small`` get what is
    left over.

    Args:
        problem: the rows.
        size: x = m + size × (1 − m).
        small: of a rank; infinite gives the minimax counts.
    """
    load, copies, counts, most = problem.load, problem.copies, problem.counts, problem.ranks
    if np.isinf(small):
        return counts
    least = (load / counts).max(axis=1)
    cut = counts_up_to(load, np.maximum(least, least + size * (1 - least)) * (1 + 1e-12), most)
    fits = cut.sum(axis=1) <= copies
    spent = minimax_counts(np.where(load / cut <= small, load, 0.0), copies, most, cut)
    return np.where(fits[:, None], spent, counts)
