"""Lower a row's fullest rank by its best exchange with any other rank: one or two copies for as many."""

from __future__ import annotations

from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

from moescope.analysis.replication_packing import CLOSED_SLOT, Packing
from moescope.schemas.records import FloatArray, IntArray

_WORTH: Final = 1 - 1e-9
_MOST_SLOTS_FOR_PAIRS: Final = 8
_MOST_CANDIDATES: Final = 10_000_000
"""Of one row: with so many slots, swaps between pairs of ranks alone come close."""
_LIGHTEST: Final = 12
"""Ranks with most room, which are looked at first; all others only where none of these helps."""
_CHUNK: Final = 2_000_000
"""Candidates looked at together; bounds the memory."""


def polish(
    packing: Packing, target: FloatArray, *, rounds: int = 64, ranks_per_node: int | None = None
) -> None:
    """Exchange copies of the fullest rank until it is within its target or nothing helps; in place.

    Args:
        packing: what to improve.
        target: float64 ``[rows]``, load of a rank that is good enough.
        rounds: at most so many exchanges per row.
        ranks_per_node: where copies must stay on the node that they are on, the ranks that one has.
    """
    _, ranks, slots = packing.experts.shape
    node = np.arange(ranks) // (ranks_per_node or ranks)
    if ranks * slots**2 > _MOST_CANDIDATES:
        return
    bundles = [np.arange(slots)[:, None]]
    if 2 <= slots <= _MOST_SLOTS_FOR_PAIRS:
        bundles.append(np.array(list(combinations(range(slots), 2))))
    chunk = max(1, _CHUNK // (ranks * max(len(bundle) for bundle in bundles) ** 2))
    left = np.nonzero(packing.worst > target)[0]
    for _ in range(rounds if ranks > 1 else 0):
        if not len(left):
            return
        improved = [
            _exchange(packing, left[at : at + chunk], bundles, node) for at in range(0, len(left), chunk)
        ]
        left = left[np.concatenate(improved)]
        left = left[packing.load[left].max(axis=1) > target[left]]


def _exchange(
    packing: Packing, row: IntArray, bundles: list[IntArray], node: IntArray
) -> npt.NDArray[np.bool_]:
    """Make the best exchange of each row's fullest rank; True for rows that it lowered."""
    order = np.argsort(packing.load[row], axis=1, kind="stable")
    full = order[:, -1]
    if order.shape[1] < 2 * _LIGHTEST:
        return _exchange_with(packing, (row, full, order), bundles, node)
    improved = _exchange_with(packing, (row, full, order[:, :_LIGHTEST]), bundles, node)
    left = np.nonzero(~improved)[0]
    if len(left):
        heavier = order[left, _LIGHTEST:]
        improved[left] = _exchange_with(packing, (row[left], full[left], heavier), bundles, node)
    return improved


def _exchange_with(
    packing: Packing, ranks: tuple[IntArray, IntArray, IntArray], bundles: list[IntArray], node: IntArray
) -> npt.NDArray[np.bool_]:
    """Make the best exchange of ``[rows]``, their fullest rank, with one of others, ``[rows, others]``."""
    row, full, others = ranks
    best = packing.load[row, full] * _WORTH
    chosen = [np.full(len(row), -1) for _ in range(2)]
    for size, bundle in enumerate(bundles):
        result = _results(packing, ranks, bundle, node).reshape(len(row), -1)
        at = result.argmin(axis=1)
        value = result[np.arange(len(row)), at]
        better = value < best
        best = np.where(better, value, best)
        chosen[0] = np.where(better, size, chosen[0])
        chosen[1] = np.where(better, at, chosen[1])
    for size, bundle in enumerate(bundles):
        uses = chosen[0] == size
        position, at = np.divmod(chosen[1][uses], len(bundle) ** 2)
        other = others[uses, position]
        out, back = bundle[at // len(bundle)], bundle[at % len(bundle)]
        _swap(packing, row[uses][:, None], (full[uses][:, None], out), (other[:, None], back))
    return chosen[0] >= 0


def _results(
    packing: Packing, ranks: tuple[IntArray, IntArray, IntArray], bundle: IntArray, node: IntArray
) -> FloatArray:
    """Larger load of both ranks after each exchange: ``[rows, others, bundle out, bundle back]``.

    What may not move weighs infinitely much, so that no exchange with it is ever the best.
    """
    row, full, others = ranks
    at = row[:, None], others
    experts, piece, load = packing.experts[at], packing.piece[at], packing.load[at]
    mine, mine_piece, mine_load = (
        array[row, full] for array in (packing.experts, packing.piece, packing.load)
    )
    met = experts[:, :, :, None] == mine[:, None, None, :]
    met &= mine[:, None, None, :] >= 0
    bars_out = met.any(axis=2) | (mine == CLOSED_SLOT)[:, None, :]
    bars_back = met.any(axis=3) | (experts == CLOSED_SLOT)
    bars_back |= ((node[others] != node[full][:, None]) | (others == full[:, None]))[:, :, None]
    out, back = mine_piece[:, bundle].sum(axis=2), piece[:, :, bundle].sum(axis=3)
    gap = (mine_load[:, None] - load) / 2
    over = out[:, None, :] - gap[:, :, None]
    for slot in bundle.T:
        over[bars_out[:, :, slot]] = np.inf
        back[bars_back[:, :, slot]] = -np.inf
    result: FloatArray = over[:, :, :, None] - back[:, :, None, :]
    np.abs(result, out=result)
    result += (mine_load[:, None] - gap)[:, :, None, None]
    return result


def _swap(
    packing: Packing, row: IntArray, mine: tuple[IntArray, IntArray], other: tuple[IntArray, IntArray]
) -> None:
    moved = (packing.piece[row, *mine] - packing.piece[row, *other]).sum(axis=1)
    for array in (packing.experts, packing.piece):
        out = array[row, *mine]
        array[row, *mine] = array[row, *other]
        array[row, *other] = out
    packing.load[row[:, 0], mine[0][:, 0]] -= moved
    packing.load[row[:, 0], other[0][:, 0]] += moved
