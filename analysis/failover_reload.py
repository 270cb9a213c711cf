"""Where experts that have no copy left are loaded again: which rank, into which slot, how many bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis.failover_share import BoolArray, TokenArray
from moescope.analysis.failover_survivors import spread_over_copies
from moescope.analysis.frozen import lock, locked_float64, locked_int64
from moescope.analysis.imbalance import ReplicaArray
from moescope.schemas.records import FloatArray, IntArray

NO_SLOT: Final = -2
"""In :attr:`Reload.replaced`: the rank has no slot for it and needs more memory."""
EMPTY: Final = -1
"""In :attr:`Reload.replaced`: it goes into an empty slot."""


@dataclass(frozen=True, slots=True)
class Reload:
    """Every lost expert on a rank that stays. The first three arrays are int64 ``[experts to load]``.

    Attributes:
        layer: row of the layer; ``expert`` likewise its logical expert, ``rank`` the row that takes it.
        replaced: the expert one of whose copies makes way, :data:`EMPTY` or :data:`NO_SLOT`.
        bytes_to_load: float64 ``[ranks]``: weights that each rank reads; NaN where their size is not known.
        bytes_beyond: float64 ``[ranks]``: of these, what has no slot and needs memory that is free.
        fits: whether every rank has that much free; None where that cannot be known.
        rank_loads: float64 ``[layers, ranks]``, assignments after it; 0 for ranks that are gone.
    """

    layer: IntArray
    expert: IntArray
    rank: IntArray
    replaced: IntArray
    bytes_to_load: FloatArray
    bytes_beyond: FloatArray
    fits: bool | None
    rank_loads: FloatArray

    @property
    def beyond(self) -> int:
        """Experts for which there is no slot."""
        return int((self.replaced == NO_SLOT).sum())

    @property
    def made_way(self) -> int:
        """Second copies that are given up."""
        return int((self.replaced >= 0).sum())


def reload_experts(
    tokens: TokenArray,
    replicas: ReplicaArray,
    is_lost: BoolArray,
    is_alive: BoolArray,
    *,
    bytes_per_expert: FloatArray | float | None = None,
    free_bytes: FloatArray | None = None,
) -> Reload:
    """Load lost experts again, the busiest first, each onto the least loaded rank that has room for it.

    Room is an empty slot; else the slot of an expert that keeps another copy; else memory that is free.

    Args:
        tokens: ``[layers, experts]``, assignments.
        replicas: ``[ranks, layers, experts]``, before the loss; each rank has as many slots as the fullest.
        is_lost: bool ``[layers, experts]``: experts without a copy on a rank that stays.
        is_alive: bool ``[ranks]``: ranks that stay; one at least.
        bytes_per_expert: of one physical expert: one number, or by layer ``[layers]``; None: not known.
        free_bytes: float64 ``[ranks]``: memory that nothing is reserved for; NaN or None: not known.
    """
    ranks, layers, _ = replicas.shape
    size = np.broadcast_to(np.nan if bytes_per_expert is None else bytes_per_expert, layers).astype(float)
    free = np.full(ranks, np.nan) if free_bytes is None else np.asarray(free_bytes, dtype=np.float64)
    kept = np.where(is_alive[:, None, None], replicas, 0)
    loads = spread_over_copies(tokens, kept)
    slots = replicas.sum(axis=2, dtype=np.int64).max(axis=0)
    room = np.where(is_alive, np.nan_to_num(free, nan=np.inf), -np.inf)
    moves: list[tuple[int, int, int, int]] = []
    for layer in np.flatnonzero(is_lost.any(axis=1)):
        work = _Layer(tokens[layer], kept[:, layer], loads[layer], int(slots[layer]), is_alive)
        for expert in sorted(np.flatnonzero(is_lost[layer]), key=lambda one: -tokens[layer, one]):
            rank, replaced = work.take(int(expert), room >= np.nan_to_num(size[layer]))
            moves.append((int(layer), int(expert), rank, replaced))
            if replaced == NO_SLOT:
                room[rank] -= np.nan_to_num(size[layer])
    layer_of, expert_of, rank_of, replaced_by = np.array(moves, dtype=np.int64).reshape(-1, 4).T
    is_beyond = replaced_by == NO_SLOT
    beyond = locked_float64(np.bincount(rank_of, size[layer_of] * is_beyond, minlength=ranks))
    return Reload(
        locked_int64(layer_of),
        locked_int64(expert_of),
        locked_int64(rank_of),
        locked_int64(replaced_by),
        locked_float64(np.bincount(rank_of, size[layer_of], minlength=ranks)),
        beyond,
        _fits(beyond, free, is_alive, any_beyond=bool(is_beyond.any())),
        lock(loads),
    )


def _fits(beyond: FloatArray, free: FloatArray, is_alive: BoolArray, *, any_beyond: bool) -> bool | None:
    if not any_beyond:
        return True
    if np.isnan(beyond).any() or np.isnan(free[is_alive]).any():
        return None
    return bool((beyond <= np.where(is_alive, free, np.inf)).all())


class _Layer:
    """One layer while experts are loaded into it. ``loads`` is changed in place."""

    def __init__(
        self, tokens: TokenArray, held: ReplicaArray, loads: FloatArray, slots: int, is_alive: BoolArray
    ) -> None:
        self._tokens = tokens.astype(np.float64)
        self._held = held.astype(np.int64)
        self._loads = loads
        self._copies = self._held.sum(axis=0)
        self._is_alive = is_alive
        self._empty = np.where(is_alive, slots - self._held.sum(axis=1), 0)

    def take(self, expert: int, has_memory: BoolArray) -> tuple[int, int]:
        """Load one expert; return the rank and what makes way."""
        if (self._empty > 0).any():
            rank, replaced = self._least_loaded(self._empty > 0), EMPTY
            self._empty[rank] -= 1
        else:
            spare = (self._held > 0) & (self._copies > 1)
            if spare.any():
                rank = self._least_loaded(spare.any(axis=1))
                replaced = self._give_up(rank, spare[rank])
            else:
                fits = self._is_alive & has_memory
                rank = self._least_loaded(fits if fits.any() else self._is_alive)
                replaced = NO_SLOT
        self._held[rank, expert] += 1
        self._copies[expert] += 1
        self._loads[rank] += self._tokens[expert]
        return rank, replaced

    def _least_loaded(self, ranks: BoolArray) -> int:
        return int(np.where(ranks, self._loads, np.inf).argmin())

    def _give_up(self, rank: int, spare: BoolArray) -> int:
        """Give up the copy that computes least; the other copies share what it computed."""
        per_copy = np.where(spare, self._tokens / np.maximum(self._copies, 1), np.inf)
        expert = int(per_copy.argmin())
        of_all, copies = self._tokens[expert], self._copies[expert]
        self._loads -= self._held[:, expert] * of_all / copies
        self._held[rank, expert] -= 1
        self._copies[expert] -= 1
        self._loads += self._held[:, expert] * of_all / (copies - 1)
        return expert
