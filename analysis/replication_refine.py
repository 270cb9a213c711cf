"""Even ranks out by swaps of two copies between two ranks, in all rows at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis.replication_packing import CLOSED_SLOT, Packing
from moescope.schemas.records import FloatArray, IntArray

_CLOSED_PIECE: Final = 1e9
"""Load of a slot that does not exist: no swap with it is ever worth it."""
_WORTH: Final = 1 - 1e-9
_STALLS: Final = 6


@dataclass(frozen=True, slots=True)
class _Swaps:
    """Candidate swaps, one per pair of ranks: int64 ``[swaps]`` each."""

    row: IntArray
    heavy: IntArray
    light: IntArray
    heavy_slot: IntArray
    light_slot: IntArray


def refine(packing: Packing, target: FloatArray, *, rounds: int = 40) -> None:
    """Swap copies until every rank of a row is within its target, or no swap helps; in place.

    Each round pairs the heaviest ranks with the lightest ones and swaps the two copies whose difference comes
    closest to half of theirs. An empty slot takes part as a copy without load. No swap makes a pair's larger
    load larger, or puts two copies of an expert on one rank.

    Args:
        packing: what to improve.
        target: float64 ``[rows]``, load of a rank that is good enough.
        rounds: at most so many.
    """
    ranks = packing.load.shape[1]
    half = ranks // 2
    stalls = np.zeros(len(packing.load), dtype=np.int64)
    for _ in range(rounds if half else 0):
        row = np.nonzero((packing.load.max(axis=1) > target) & (stalls < _STALLS))[0]
        if not len(row):
            return
        before = packing.load[row].max(axis=1)
        order = np.argsort(packing.load[row], axis=1)
        heavy = order[:, ::-1][:, :half]
        turned = (np.arange(half)[None, :] + stalls[row][:, None]) % half
        light = np.take_along_axis(order[:, :half], turned, axis=1)
        over = np.take_along_axis(packing.load[row], heavy, axis=1) > target[row][:, None]
        at, pair = np.nonzero(over)
        swap_best(packing, row[at], heavy[at, pair], light[at, pair])
        stalls[row] = np.where(packing.load[row].max(axis=1) < before * _WORTH, 0, stalls[row] + 1)


def swap_best(packing: Packing, row: IntArray, heavy: IntArray, light: IntArray) -> None:
    """Make the best swap of each pair of ranks, where it lowers the larger load; pairs are disjoint."""
    gap = (packing.load[row, heavy] - packing.load[row, light]) / 2
    from_heavy, from_light = _pieces(packing, row, heavy), _pieces(packing, row, light)
    miss = (from_heavy - gap[:, None])[:, :, None] - from_light[:, None, :]
    np.abs(miss, out=miss)
    slots = from_heavy.shape[1]
    flat = miss.reshape(len(row), -1)
    best = flat.argmin(axis=1)
    helps = flat[np.arange(len(row)), best] < gap * _WORTH
    swaps = _Swaps(
        *(array[helps] for array in (row, heavy, light, best // slots, best % slots)),
    )
    _apply(packing, swaps)


def _pieces(packing: Packing, row: IntArray, rank: IntArray) -> FloatArray:
    closed = packing.experts[row, rank] == CLOSED_SLOT
    piece: FloatArray = np.where(closed, _CLOSED_PIECE, packing.piece[row, rank])
    return piece


def _apply(packing: Packing, swaps: _Swaps) -> None:
    """Make those swaps that keep an expert's copies on distinct ranks."""
    row, heavy, light = swaps.row, swaps.heavy, swaps.light
    goes = packing.experts[row, heavy, swaps.heavy_slot]
    comes = packing.experts[row, light, swaps.light_slot]
    clash = ((packing.experts[row, light] == goes[:, None]).any(axis=1) & (goes >= 0)) | (
        (packing.experts[row, heavy] == comes[:, None]).any(axis=1) & (comes >= 0)
    )
    kept = ~clash
    row, heavy, light = row[kept], heavy[kept], light[kept]
    heavy_slot, light_slot = swaps.heavy_slot[kept], swaps.light_slot[kept]
    moved = packing.piece[row, heavy, heavy_slot] - packing.piece[row, light, light_slot]
    for array in (packing.experts, packing.piece):
        out = array[row, heavy, heavy_slot]
        array[row, heavy, heavy_slot] = array[row, light, light_slot]
        array[row, light, light_slot] = out
    packing.load[row, heavy] -= moved
    packing.load[row, light] += moved
