"""Even ranks out by swaps of two copies between two ranks, in all rows at once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from moescope.analysis.replication_packing import CLOSED_SLOT, Packing
from moescope.schemas.records import FloatArray, IntArray

Float32Array: TypeAlias = npt.NDArray[np.float32]

MoveCheck: TypeAlias = Callable[[IntArray, IntArray, IntArray, IntArray], npt.NDArray[np.bool_]]

_CLOSED_PIECE: Final = 1e9
"""Load of a slot that does not exist: no swap with it is ever worth it."""
_WORTH: Final = 1 - 1e-9
_STALLS: Final = {1: 6, 2: 20}
"""Rounds without a lower fullest rank after which a row is left, by the copies that move together."""
_CACHED: Final = 60_000
"""Candidates looked at together: few enough for their table to stay in the processor's cache."""


def refine(
    packing: Packing,
    target: FloatArray,
    *,
    rounds: int = 40,
    together: int = 1,
    keeps_rules: MoveCheck | None = None,
) -> None:
    """Swap copies until every rank of a row is within its target, or no swap helps; in place.

    Each round pairs the heaviest ranks with the lightest ones and swaps the two copies whose difference comes
    closest to half of theirs. An empty slot takes part as a copy without load. No swap makes a pair's larger
    load larger, or puts two copies of an expert on one rank.

    Args:
        packing: what to improve.
        target: float64 ``[rows]``, load of a rank that is good enough.
        rounds: at most so many.
        together: copies that change places for as many: 1 or 2.
        keeps_rules: tells which single copies may move: rows, experts, ranks that they leave and go to.
    """
    ranks = packing.load.shape[1]
    half = ranks // 2
    bundles = np.array(list(combinations(range(packing.experts.shape[2]), together)))
    if not len(bundles):
        return
    quick = _quick_pieces(packing)
    stalls = np.zeros(len(packing.load), dtype=np.int64)
    for _ in range(rounds if half else 0):
        row = np.nonzero((packing.load.max(axis=1) > target) & (stalls < _STALLS[together]))[0]
        if not len(row):
            return
        before = packing.load[row].max(axis=1)
        order = np.argsort(packing.load[row], axis=1)
        heavy = order[:, ::-1][:, :half]
        turned = (np.arange(half)[None, :] + stalls[row][:, None]) % half
        light = np.take_along_axis(order[:, :half], turned, axis=1)
        over = np.take_along_axis(packing.load[row], heavy, axis=1) > target[row][:, None]
        at, pair = np.nonzero(over)
        _swap_best(packing, quick, (row[at], heavy[at, pair], light[at, pair]), bundles, keeps_rules)
        stalls[row] = np.where(packing.load[row].max(axis=1) < before * _WORTH, 0, stalls[row] + 1)


def _swap_best(
    packing: Packing,
    quick: Float32Array,
    pairs: tuple[IntArray, IntArray, IntArray],
    bundles: IntArray,
    keeps_rules: MoveCheck | None,
) -> None:
    """Make the best swap of each pair of ranks, where it lowers the larger load; pairs are disjoint."""
    row, heavy, light = pairs
    ranks, slots = packing.experts.shape[1:]
    experts, piece = packing.experts.reshape(-1, slots), packing.piece.reshape(-1, slots)
    load = packing.load.reshape(-1)
    heavy, light = row * ranks + heavy, row * ranks + light
    gap = (load[heavy] - load[light]) / 2
    wanted = _bundled(quick[heavy], bundles) - gap[:, None].astype(np.float32)
    out, back = np.divmod(_nearest(wanted, _bundled(quick[light], bundles)), len(bundles))
    mine, other = (heavy[:, None], bundles[out]), (light[:, None], bundles[back])
    moved = piece[mine].sum(axis=1) - piece[other].sum(axis=1)
    goes, comes = experts[mine], experts[other]
    clash = _meet(goes, experts[light]) | _meet(comes, experts[heavy])
    kept = np.nonzero((np.abs(moved - gap) < gap * _WORTH) & ~clash)[0]
    if keeps_rules is not None:
        there, here = heavy[kept] % ranks, light[kept] % ranks
        may = keeps_rules(row[kept], goes[kept, 0], there, here)
        may &= keeps_rules(row[kept], comes[kept, 0], here, there)
        kept = kept[may]
    mine, other = (heavy[kept, None], bundles[out[kept]]), (light[kept, None], bundles[back[kept]])
    for array in (experts, piece, quick):
        array[mine], array[other] = array[other], array[mine]
    load[heavy[kept]] -= moved[kept]
    load[light[kept]] += moved[kept]


def _bundled(piece: Float32Array, bundles: IntArray) -> Float32Array:
    """Add up each bundle of slots: float32 ``[pairs, bundles]``."""
    together: Float32Array = piece if bundles.shape[1] == 1 else piece[:, bundles].sum(axis=2)
    return together


def _meet(moving: IntArray, there: IntArray) -> npt.NDArray[np.bool_]:
    """Whether one of the moving experts has a copy there, or has no slot that could move."""
    meet = (there[:, None, :] == moving[:, :, None]).any(axis=2) & (moving >= 0)
    clash: npt.NDArray[np.bool_] = (meet | (moving == CLOSED_SLOT)).any(axis=1)
    return clash


def _nearest(wanted: Float32Array, offered: Float32Array) -> IntArray:
    """Find where the two nearest numbers of each row stand, in the flat table of both: int64 ``[rows]``."""
    rows, slots = wanted.shape
    nearest = np.empty(rows, dtype=np.int64)
    pairs = max(1, _CACHED // slots**2)
    miss = np.empty((min(rows, pairs), slots, slots), dtype=np.float32)
    for at in range(0, rows, pairs):
        part = slice(at, min(at + pairs, rows))
        there = miss[: part.stop - at]
        np.subtract(wanted[part, :, None], offered[part, None, :], out=there)
        np.abs(there, out=there)
        there.reshape(len(there), -1).argmin(axis=1, out=nearest[part])
    return nearest


def _quick_pieces(packing: Packing) -> Float32Array:
    """Pieces as float32 ``[rows × ranks, slots]``, to look for swaps in half the time."""
    quick = packing.piece.astype(np.float32)
    quick[packing.experts == CLOSED_SLOT] = _CLOSED_PIECE
    return quick.reshape(-1, quick.shape[2])
