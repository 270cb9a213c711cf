"""What the planner solves: rows of loads and slots, each a layer or one node's part of a layer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from moescope.schemas.records import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Problem:
    """Rows that are solved at once, on the same number of ranks.

    Attributes:
        load: float64 ``[rows, experts]``, falling along each row, scaled to a mean rank load of 1 in a layer.
        raw: float64 ``[rows, experts]``, the same before it was scaled: equal quotients are equal here.
        order: int64 ``[rows, experts]``, where each expert stood before the loads were sorted.
        capacity: int64 ``[rows, ranks]``, slots.
        copies: int64 ``[rows]``, copies to place.
        counts: int64 ``[rows, experts]``, the minimax counts.
        bound: float64 ``[rows]``, what the fullest rank cannot be below, or does not have to be.
    """

    load: FloatArray
    raw: FloatArray
    order: IntArray
    capacity: IntArray
    copies: IntArray
    counts: IntArray
    bound: FloatArray

    @property
    def ranks(self) -> int:
        """Ranks of a row; also the copies that an expert has at most."""
        return int(self.capacity.shape[1])

    def take(self, rows: Any) -> Problem:
        """Copy some rows."""
        return Problem(
            *(array[rows] for array in (self.load, self.raw, self.order, self.capacity)),
            *(array[rows] for array in (self.copies, self.counts, self.bound)),
        )


def sort_load(load: FloatArray, scale: FloatArray, ranks: int) -> tuple[FloatArray, FloatArray, IntArray]:
    """Sort experts by falling load: scaled and raw load, and where each expert stood.

    Args:
        load: float64 ``[rows, experts]``.
        scale: float64 ``[rows]``, mean rank load of the layer; 0 gives every expert the same.
        ranks: ranks of a row.
    """
    order = np.argsort(-load, axis=1, kind="stable")
    raw = np.take_along_axis(load, order, axis=1)
    raw[scale <= 0] = 1.0
    scaled = raw / np.where(scale > 0, scale, load.shape[1] / ranks)[:, None]
    return scaled, raw, order


@dataclass(slots=True)
class TimeBudget:
    """Wall time that a search may take; asking whether it is over also remembers that it was."""

    seconds: float
    is_cut_short: bool = False
    clock: Callable[[], float] = time.monotonic
    started: float = field(init=False)

    def __post_init__(self) -> None:
        """Start the clock."""
        self.started = self.clock()

    @property
    def is_over(self) -> bool:
        """Whether the time is used up."""
        self.is_cut_short |= self.clock() - self.started > self.seconds
        return self.is_cut_short
