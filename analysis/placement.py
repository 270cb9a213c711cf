"""Read where the copies of each expert are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from moescope.analysis.expert_load import ExpertLoadWindow, from_ms
from moescope.analysis.frozen import lock, locked_int64
from moescope.analysis.store import Store, column_as_array, list_column_as_array
from moescope.schemas.records import IntArray

_LOOK_BACKS_MS: Final = (3_600_000, 86_400_000)
"""Ranks repeat their placement within minutes; only where one did not is a whole day looked through."""


@dataclass(frozen=True, slots=True)
class PlacementSnapshot:
    """The newest placement that each rank of an EP group reported.

    Attributes:
        time_ms: time of the newest of them, Unix milliseconds.
        ep_size: ranks of the group.
        ranks: int64 ``[ranks]``, the EP ranks that reported, increasing.
        replicas: uint16 ``[ranks, layers, experts]``, copies, on the layer axis of the window it was read
            for; read-only.
    """

    time_ms: int
    ep_size: int
    ranks: IntArray
    replicas: npt.NDArray[np.uint16]

    @property
    def time(self) -> datetime:
        """Time of the newest snapshot, UTC."""
        return from_ms(self.time_ms)

    @property
    def missing_ranks(self) -> IntArray:
        """Ranks of the group that never reported a placement: int64, increasing."""
        return np.setdiff1d(np.arange(self.ep_size), self.ranks)

    @property
    def redundant_experts(self) -> int:
        """Copies of a layer beyond the first of each expert, of the layer with most."""
        copies = self.replicas.sum(axis=0, dtype=np.int64)
        return int(np.maximum(copies - 1, 0).sum(axis=1).max(initial=0))

    def ranks_of(self, layer_row: int, expert: int) -> IntArray:
        """EP ranks that hold a copy of an expert: int64, increasing."""
        return self.ranks[self.replicas[:, layer_row, expert] > 0]


def read_placement(store: Store, window: ExpertLoadWindow) -> PlacementSnapshot | None:
    """Read the placement as it was at the end of a window; None when no rank reported one within a day.

    Ranks of an earlier start with another group size are left out: they are gone.

    Raises:
        StoreError: the store cannot answer.
    """
    if not len(window.layers):
        return None
    snapshot = None
    for look_back_ms in _LOOK_BACKS_MS:
        snapshot = _read_since(store, window, window.end_ms - look_back_ms)
        if snapshot is not None and snapshot.is_complete:
            break
    return None if snapshot is None else snapshot.placement


@dataclass(frozen=True, slots=True)
class _Found:
    placement: PlacementSnapshot
    is_complete: bool


def _read_since(store: Store, window: ExpertLoadWindow, from_ms: int) -> _Found | None:
    scope = window.scope
    table = store.query(
        "placement",
        service=scope.service,
        ep_group=scope.ep_group,
        experts=scope.experts,
        from_ms=from_ms,
        until_ms=window.end_ms,
    )
    if not table.num_rows:
        return None
    times, sizes = column_as_array(table, "time_ms"), column_as_array(table, "ep_size")
    newest = int(times.argmax())
    ep_size = int(sizes[newest])
    kept = (sizes == ep_size) & (column_as_array(table, "ep_rank") < ep_size)
    kept &= np.isin(column_as_array(table, "layer"), window.layers)
    ranks, replicas = _scatter(table, kept, window)
    placement = PlacementSnapshot(int(times[newest]), ep_size, locked_int64(ranks), lock(replicas))
    return _Found(placement, int(kept.sum()) >= ep_size * len(window.layers))


def _scatter(table: Any, kept: npt.NDArray[np.bool_], window: ExpertLoadWindow) -> tuple[Any, Any]:
    """The ranks that reported, and their copies on the axes ``[ranks, layers, experts]``."""
    ranks, rank_row = np.unique(column_as_array(table, "ep_rank")[kept], return_inverse=True)
    layer_row = np.searchsorted(window.layers, column_as_array(table, "layer")[kept])
    replicas = np.zeros((len(ranks), len(window.layers), window.scope.experts), dtype=np.uint16)
    replicas[rank_row, layer_row] = list_column_as_array(table, "replicas", window.scope.experts)[kept]
    return ranks, replicas
