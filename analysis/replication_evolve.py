"""Better counts by chance: move a few copies between experts, and keep what places better."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from moescope.analysis.replication_packing import Packing, pack_rounds
from moescope.analysis.replication_polish import polish
from moescope.analysis.replication_problem import Problem, TimeBudget
from moescope.analysis.replication_refine import refine
from moescope.schemas.records import IntArray

_OFFSPRING: Final = (16, 128)
"""New counts per row and generation: few for large problems, many for small ones."""
_GENERATION_WORK: Final = 4_000
_POLISHED: Final = 4
_GENERATIONS: Final = (4, 40)
_PATIENCE: Final = (5, 16)
"""Generations without progress after which a row is left: few for large problems, many for small ones."""
_MOST_WORK: Final = 10_000_000
"""Copies placed over all generations, about: some seconds."""
_ONE_SIDED: Final = 1 / 8
"""Where copies may stay unused: how often one is only taken away; as often one is only given."""
_NEAR: Final = 2e-4


def evolve(
    problem: Problem,
    packing: Packing,
    rows: IntArray,
    budget: TimeBudget,
    progress: Callable[[int], None],
    *,
    may_leave_out: bool = False,
) -> None:
    """Improve some rows in place until they are near their bound or patience ends.

    Chance begins at the same seed each time: the same problem has the same solution.

    Args:
        problem: all rows.
        packing: of all rows.
        rows: int64, which ones to improve; those without spare copies are left alone.
        budget: ends the search.
        progress: called with the number of rows that still want improvement.
        may_leave_out: whether copies may stay unused.
    """
    rows = rows[problem.copies[rows] > problem.load.shape[1]]
    waited = np.zeros(len(rows), dtype=np.int64)
    random = np.random.default_rng(896)
    slots = max(1, len(rows)) * problem.ranks * int(problem.capacity.max())
    offspring = int(np.clip(_GENERATION_WORK // slots, *_OFFSPRING))
    work = slots * offspring
    patience = int(np.clip(offspring // 8, *_PATIENCE))
    for _ in range(int(np.clip(_MOST_WORK // work, *_GENERATIONS))):
        if not len(rows) or budget.is_over:
            return
        before = packing.worst[rows]
        part = problem.take(np.repeat(rows, offspring))
        counts = _mutate(
            np.repeat(_counts_of(packing, rows, part.load.shape[1]), offspring, axis=0),
            part,
            random,
            one_sided=_ONE_SIDED if may_leave_out else 0.0,
        )
        young = pack_rounds(part.load, counts, part.capacity)
        target = part.bound * (1 + _NEAR)
        refine(young, target, rounds=16)
        first = np.arange(len(rows))[:, None] * offspring
        best = np.argsort(young.worst.reshape(len(rows), -1), axis=1, kind="stable")[:, :_POLISHED]
        chosen = (first + best).ravel()
        fine = young.take(chosen)
        polish(fine, target[chosen], rounds=32)
        winner = np.arange(len(rows)) * _POLISHED + fine.worst.reshape(len(rows), -1).argmin(axis=1)
        packing.keep_better(rows, fine.take(winner))
        waited = np.where(packing.worst[rows] < before, 0, waited + 1)
        kept = (waited < patience) & (packing.worst[rows] > problem.bound[rows] * (1 + _NEAR))
        rows, waited = rows[kept], waited[kept]
        progress(len(rows))


def _counts_of(packing: Packing, rows: IntArray, experts: int) -> IntArray:
    held = packing.experts[rows].reshape(len(rows), -1)
    column = np.where(held < 0, experts, held) + np.arange(len(rows))[:, None] * (experts + 1)
    counts = np.bincount(column.ravel(), minlength=len(rows) * (experts + 1)).reshape(len(rows), -1)
    return counts[:, :experts].astype(np.int64)


def _mutate(counts: IntArray, problem: Problem, random: np.random.Generator, *, one_sided: float) -> IntArray:
    """Take one to three copies from random experts and give them to others, the heavier the likelier.

    With the chance ``one_sided`` a copy is only taken away, and with the same one that is not used is given.
    """
    at = np.arange(len(counts))
    times = random.integers(1, 4, len(counts))
    unused = problem.copies - counts.sum(axis=1)
    for turn in range(3):
        moves = times > turn
        size = problem.load / counts
        gives = np.where(counts > 1, random.random(counts.shape), -1.0)
        gets = np.where(counts < problem.ranks, random.random(counts.shape) ** (1 / (size + 1e-3)), -1.0)
        giver = gives.argmax(axis=1)
        gets[at, giver] = -1.0
        getter = gets.argmax(axis=1)
        chance = random.random(len(counts)) if one_sided else np.full(len(counts), 0.5)
        takes = moves & (gives[at, giver] >= 0) & (chance < 1 - one_sided)
        adds = moves & (gets[at, getter] >= 0) & (takes | (unused > 0)) & (chance >= one_sided)
        takes &= adds | (chance < one_sided)
        counts[at[takes], giver[takes]] -= 1
        counts[at[adds], getter[adds]] += 1
        unused += takes.astype(np.int64) - adds
    return counts
