"""Copies on ranks: the arrays that the planner works on, and two ways to fill them from nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import EMPTY_SLOT

CLOSED_SLOT: Final = -2
"""Stands where a rank has fewer slots than the widest."""


@dataclass(slots=True)
class Packing:
    """Copies on ranks, for many rows (layers, or layers of one node) at once; worked on in place.

    Attributes:
        experts: int64 ``[rows, ranks, slots]``; −1 is an empty slot, −2 none at all.
        piece: float64 ``[rows, ranks, slots]``, the load of each copy, 0 where there is none.
        load: float64 ``[rows, ranks]``, the sum of the pieces.
    """

    experts: IntArray
    piece: FloatArray
    load: FloatArray

    @property
    def worst(self) -> FloatArray:
        """Load of the fullest rank: float64 ``[rows]``."""
        worst: FloatArray = self.load.max(axis=1)
        return worst

    def take(self, rows: Any) -> Packing:
        """Copy some rows."""
        return Packing(self.experts[rows], self.piece[rows], self.load[rows])

    def put(self, rows: Any, other: Packing) -> None:
        """Overwrite some rows."""
        self.experts[rows], self.piece[rows], self.load[rows] = other.experts, other.piece, other.load

    def keep_better(self, rows: IntArray, other: Packing) -> None:
        """Overwrite those of ``rows`` in which ``other``, which has only these, is better."""
        better = other.worst < self.worst[rows]
        self.put(rows[better], other.take(better))


def weigh(experts: IntArray, load: FloatArray) -> Packing:
    """Split every expert's load (``[rows, experts]``) evenly over the copies that are in ``experts``."""
    rows, num_experts = load.shape
    width = num_experts + 2
    column = experts.reshape(rows, -1) + (np.arange(rows) * width + 2)[:, None]
    copies = np.bincount(column.ravel(), minlength=rows * width).reshape(rows, width)
    size = np.zeros((rows, width))
    np.divide(load, np.maximum(copies[:, 2:], 1), out=size[:, 2:])
    piece = size.ravel()[column].reshape(experts.shape)
    return Packing(experts, piece, piece.sum(axis=2))


def pack_rounds(load: FloatArray, counts: IntArray, capacity: IntArray) -> Packing:
    """Fill the ranks in rounds of one copy each, the heaviest first, each to the lightest rank that is left.

    Copies of an expert follow each other, so only an expert that begins in one round and ends in the next can
    meet itself; its ranks are passed over. Where uneven slots leave no rank for a copy, it is left out.

    Args:
        load: float64 ``[rows, experts]``.
        counts: int64 ``[rows, experts]``, copies of each.
        capacity: int64 ``[rows, ranks]``, slots.
    """
    rows, ranks = capacity.shape
    rounds = _deal(load, counts, capacity)
    width = rounds.shape[1]
    size = np.concatenate([load / counts, np.zeros((rows, 2))], axis=1)
    experts = np.full((rows, width, ranks), CLOSED_SLOT, dtype=np.int64)
    total = np.zeros((rows, ranks))
    row = np.arange(rows)[:, None]
    is_even = bool((capacity == capacity[0, 0]).all())
    is_short = False
    for turn in range(width):
        dealt = rounds[:, turn]
        key = total if is_even else np.where(capacity > turn, total, np.inf)
        order = np.argsort(key, axis=1)
        if turn:
            goes_on = (dealt[:, 0] == rounds[:, turn - 1, -1 if is_even else 0]) | (not is_even)
            again = np.nonzero(goes_on & (dealt[:, 0] >= 0))[0]
            if len(again):
                is_short |= _pass_over(order, experts, key, dealt, turn=turn, again=again)
        experts[row, turn, order] = dealt
        total[row, order] += np.take_along_axis(size, dealt, axis=1)
    experts = np.ascontiguousarray(experts.transpose(0, 2, 1))
    if is_short:
        return weigh(experts, load)
    piece = np.take_along_axis(size, experts.reshape(rows, -1), axis=1).reshape(experts.shape)
    return Packing(experts, piece, total)


def _deal(load: FloatArray, counts: IntArray, capacity: IntArray) -> IntArray:
    """Sort the copies into rounds, the heaviest first: int64 ``[rows, slots, ranks]``."""
    rows, ranks = capacity.shape
    width = int(capacity.max())
    order = np.argsort(-(load / counts), axis=1, kind="stable")
    repeats = np.take_along_axis(counts, order, axis=1)
    total = repeats.sum(axis=1)
    slots = capacity.sum(axis=1)
    listed = np.full((rows, width * ranks), EMPTY_SLOT, dtype=np.int64)
    listed[np.arange(width * ranks) < total[:, None]] = np.repeat(order.ravel(), repeats.ravel())
    if (slots == width * ranks).all():
        return listed.reshape(rows, width, ranks)
    dealt = np.full((rows, width, ranks), CLOSED_SLOT, dtype=np.int64)
    in_turn = (capacity[:, :, None] > np.arange(width)).sum(axis=1)
    dealt[np.arange(ranks) < in_turn[:, :, None]] = listed[np.arange(width * ranks) < slots[:, None]]
    return dealt


def _pass_over(
    order: IntArray, experts: IntArray, key: FloatArray, dealt: IntArray, *, turn: int, again: IntArray
) -> bool:
    """Send the rest of an expert that was begun to ranks without it; True where a copy had to be left out."""
    first = dealt[again, 0]
    holds = (experts[again, :turn] == first[:, None, None]).any(axis=1)
    left = (dealt[again] == first[:, None]).sum(axis=1)
    free = np.argsort(np.where(holds, np.inf, key[again]), axis=1, kind="stable")
    open_ranks = (~holds & np.isfinite(key[again])).sum(axis=1)
    place = np.empty_like(free)
    np.put_along_axis(place, free, np.arange(free.shape[1])[None, :], axis=1)
    is_rest = place < np.minimum(left, open_ranks)[:, None]
    order[again] = np.lexsort((np.where(is_rest, place, 0), np.where(is_rest, -np.inf, key[again])), axis=1)
    over = (np.arange(free.shape[1]) >= open_ranks[:, None]) & (dealt[again] == first[:, None])
    if not over.any():
        return False
    dealt[again] = np.where(over, EMPTY_SLOT, dealt[again])
    return True
