"""What requests hold: KDA state slots, copied on write, beside MLA KV cache blocks, which grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from moescope.analysis.coverage import read_coverage
from moescope.analysis.expert_load import TimeArray
from moescope.analysis.frozen import lock, locked_int64
from moescope.analysis.span import Span
from moescope.analysis.store import Store, column_as_array
from moescope.schemas.records import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Occupancy:
    """One kind of cache entry, newest state by rank. Arrays are ``[ranks]``.

    Attributes:
        used: float64, NaN where the rank has no such cache.
        limit: float64, NaN where it is not known.
    """

    used: FloatArray
    limit: FloatArray

    @property
    def ratio(self) -> FloatArray:
        """Used / limit, float64 ``[ranks]``; NaN without either."""
        ratio = np.full(len(self.used), np.nan)
        np.divide(self.used, self.limit, out=ratio, where=self.limit > 0)
        return ratio

    @property
    def is_stored(self) -> bool:
        """Whether any rank has such a cache."""
        return bool(np.isfinite(self.used).any())


@dataclass(frozen=True, slots=True)
class CacheStates:
    """Both kinds, on the axis of the EP ranks that reported.

    Attributes:
        ranks: int64 ``[ranks]``, increasing.
        kda_slots, mla_blocks: never added up.
    """

    ranks: IntArray
    kda_slots: Occupancy
    mla_blocks: Occupancy


@dataclass(frozen=True, slots=True)
class CacheHistory:
    """Both kinds over time. Arrays are ``[steps]``.

    Attributes:
        times: datetime64[ms], UTC, starts of the steps.
        kda_ratio, mla_ratio: float64, used / limit of the fullest rank; NaN without a limit.
        copies_on_write, checkpoint_copies: float64, KDA state slots copied a second, over all ranks.
    """

    times: TimeArray
    kda_ratio: FloatArray
    mla_ratio: FloatArray
    copies_on_write: FloatArray
    checkpoint_copies: FloatArray

    @property
    def has_copies(self) -> bool:
        """Whether any slot was copied."""
        return bool(self.copies_on_write.sum() + self.checkpoint_copies.sum())


def read_cache_states(store: Store, span: Span) -> CacheStates:
    """Read the newest state of each rank's caches within a span of one EP group.

    Raises:
        StoreError: the store cannot answer.
    """
    table = store.query("cache_state", **span.params())
    names = ("kda_slots", "kda_slots_limit", "mla_blocks", "mla_blocks_limit")
    slots, slots_limit, blocks, blocks_limit = (_nullable(table, name) for name in names)
    return CacheStates(
        locked_int64(column_as_array(table, "ep_rank")),
        Occupancy(slots, slots_limit),
        Occupancy(blocks, blocks_limit),
    )


def read_cache_history(store: Store, span: Span) -> CacheHistory:
    """Read how full the caches were, and how much KDA state was copied.

    Raises:
        StoreError: the store cannot answer.
    """
    table = store.query("cache_history", step_seconds=span.step_seconds, **span.params())
    times = column_as_array(table, "time_ms").astype("datetime64[ms]")
    seconds = read_coverage(store, span).seconds_of(times)
    kda_ratio, mla_ratio = (_nullable(table, name) for name in ("kda_ratio", "mla_ratio"))
    on_write, checkpoint = (
        lock(column_as_array(table, name) / seconds)
        for name in ("kda_copies_on_write", "kda_copies_checkpoint")
    )
    return CacheHistory(lock(times), kda_ratio, mla_ratio, on_write, checkpoint)


def _nullable(table: Any, name: str) -> FloatArray:
    column: FloatArray = lock(np.array(table.column(name).to_pylist(), dtype=np.float64))
    return column
