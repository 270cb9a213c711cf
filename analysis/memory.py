"""Where a rank's bytes are: six pools with their limits. KDA state and MLA KV cache are never one number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.expert_load import TimeArray
from moescope.analysis.frozen import lock, locked_int64
from moescope.analysis.span import Span
from moescope.analysis.store import Store, column_as_array
from moescope.analysis.vocabulary import known_rows
from moescope.schemas.attributes import MemoryPool
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.settings import Settings

RESERVED_POOLS: Final = frozenset({MemoryPool.WEIGHTS, MemoryPool.REPLICATION, MemoryPool.RUNTIME})
"""Sized when an engine starts: weights, their extra copies, and the most that a forward pass may need. That
they fill their share is how it should be."""

GROWING_POOLS: Final = tuple(pool for pool in MemoryPool if pool not in RESERVED_POOLS)
"""Pools that can run out: they fill with requests and with experts that move."""


@dataclass(frozen=True, slots=True)
class FullPool:
    """One pool of one rank, and how full it is."""

    rank: int
    pool: MemoryPool
    used_bytes: int
    limit_bytes: int

    @property
    def ratio(self) -> float:
        """Used / limit."""
        return self.used_bytes / self.limit_bytes


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """The newest state of every rank's pools.

    Attributes:
        ranks: int64 ``[ranks]``, EP ranks that reported, increasing.
        pools: those that any rank reported, in the order of the vocabulary.
        used_bytes: float64 ``[ranks, pools]``, NaN where a rank reported none.
        limit_bytes: float64 ``[ranks, pools]``, NaN without a limit.
        full: growing pools above the settings' share of their limit, the fullest first.
        fullest: the fullest growing pool of all; None when none has a limit.
    """

    ranks: IntArray
    pools: tuple[MemoryPool, ...]
    used_bytes: FloatArray
    limit_bytes: FloatArray
    full: tuple[FullPool, ...]
    fullest: FullPool | None

    @property
    def ratio(self) -> FloatArray:
        """Used / limit, float64 ``[ranks, pools]``; NaN without a limit."""
        ratio = np.full(self.used_bytes.shape, np.nan)
        np.divide(self.used_bytes, self.limit_bytes, out=ratio, where=self.limit_bytes > 0)
        return ratio

    @property
    def limited(self) -> tuple[MemoryPool, ...]:
        """Growing pools of which any rank's limit is known."""
        return tuple(
            pool
            for column, pool in enumerate(self.pools)
            if pool in GROWING_POOLS and np.isfinite(self.limit_bytes[:, column]).any()
        )

    @property
    def limited_ratio(self) -> FloatArray:
        """Used / limit of :attr:`limited`: float64 ``[pools, ranks]``."""
        rows: FloatArray = self.ratio.T[[self.pools.index(pool) for pool in self.limited]]
        return rows

    @property
    def total_limits(self) -> FloatArray:
        """Sum of the limits that are known, bytes: float64 ``[ranks]``, NaN where none is."""
        totals: FloatArray = np.where(
            np.isnan(self.limit_bytes).all(axis=1), np.nan, np.nansum(self.limit_bytes, axis=1)
        )
        return totals

    @property
    def largest_total(self) -> float:
        """The most that any rank uses or may use, bytes: how far a scale has to go."""
        used = np.nansum(self.used_bytes, axis=1)
        return float(max(used.max(initial=0.0), np.nan_to_num(self.total_limits).max(initial=0.0)))

    def describe(self, row: int, column: int) -> str:
        """``23.0 GiB of 29.0 GiB, 79 %``, or without a limit only what is in use."""
        used, limit = self.used_bytes[row, column], self.limit_bytes[row, column]
        if np.isnan(used):
            return "not reported"
        if np.isnan(limit):
            return words.binary_bytes(float(used))
        share = words.percent(float(used / limit))
        return f"{words.binary_bytes(float(used))} of {words.binary_bytes(float(limit))}, {share}"

    def fullest_of(self, pool: MemoryPool) -> FullPool | None:
        """The rank whose pool of that kind is fullest; None when none has a limit."""
        if pool not in self.pools:
            return None
        column = self.pools.index(pool)
        ratio = self.ratio[:, column]
        if np.isnan(ratio).all():
            return None
        row = int(np.nanargmax(ratio))
        return _full_pool(self, row, column)


@dataclass(frozen=True, slots=True)
class PoolHistory:
    """How full the pools were. Arrays are ``[steps]``.

    Attributes:
        times: by pool, datetime64[ms], UTC, starts of the steps.
        fullest_ratio: by pool, float64, used / limit of the fullest rank; NaN without a limit.
        mean_used_bytes: by pool, float64, of the mean rank.
    """

    times: Mapping[MemoryPool, TimeArray]
    fullest_ratio: Mapping[MemoryPool, FloatArray]
    mean_used_bytes: Mapping[MemoryPool, FloatArray]


def read_pool_memory(store: Store, span: Span, settings: Settings) -> PoolMemory:
    """Read the newest state of each rank's pools within a span of one EP group.

    Raises:
        StoreError: the store cannot answer.
    """
    rows = known_rows(store.query("memory_by_pool", **span.params()).to_pylist(), "pool", MemoryPool)
    limits = [row["limit_bytes"] for row in rows]
    return arrange_pools(
        locked_int64([row["ep_rank"] for row in rows]),
        [MemoryPool(row["pool"]) for row in rows],
        np.array([row["used_bytes"] for row in rows], dtype=np.float64),
        np.array([np.nan if limit is None else limit for limit in limits], dtype=np.float64),
        full_ratio=settings.memory_full_ratio,
    )


def arrange_pools(
    ranks_of_rows: IntArray,
    pools_of_rows: Sequence[MemoryPool],
    used_bytes: FloatArray,
    limit_bytes: FloatArray,
    *,
    full_ratio: float,
) -> PoolMemory:
    """Arrange (rank, pool, used, limit) by rank and pool, and name those above ``full_ratio``."""
    ranks = np.unique(ranks_of_rows)
    pools = tuple(pool for pool in MemoryPool if pool in set(pools_of_rows))
    cells = (
        np.searchsorted(ranks, ranks_of_rows),
        np.array([pools.index(pool) for pool in pools_of_rows], dtype=np.int64),
    )
    used, limit = (np.full((len(ranks), len(pools)), np.nan) for _ in range(2))
    used[cells], limit[cells] = used_bytes, limit_bytes
    bare = PoolMemory(locked_int64(ranks), pools, lock(used), lock(limit), (), None)
    ratio = np.nan_to_num(bare.ratio, nan=-1.0)
    order = np.argsort(-ratio, axis=None, kind="stable")
    ranked = [
        _full_pool(bare, int(cell // len(pools)), int(cell % len(pools)))
        for cell in order
        if ratio.flat[cell] >= 0 and pools[cell % len(pools)] in GROWING_POOLS
    ]
    return PoolMemory(
        *(bare.ranks, pools, bare.used_bytes, bare.limit_bytes),
        tuple(one for one in ranked if one.ratio > full_ratio),
        ranked[0] if ranked else None,
    )


def read_pool_history(store: Store, span: Span) -> PoolHistory:
    """Read how full each kind of pool was over a span.

    Raises:
        StoreError: the store cannot answer.
    """
    table = store.query("memory_history", step_seconds=span.step_seconds, **span.params())
    names = column_as_array(table, "pool")
    rows = {pool: np.flatnonzero(names == pool.value) for pool in MemoryPool if (names == pool.value).any()}
    times = column_as_array(table, "time_ms").astype("datetime64[ms]")
    ratio = np.array(table.column("fullest_ratio").to_pylist(), dtype=np.float64)
    used = column_as_array(table, "mean_used_bytes").astype(np.float64)
    return PoolHistory(
        {pool: lock(times[at]) for pool, at in rows.items()},
        {pool: lock(ratio[at]) for pool, at in rows.items()},
        {pool: lock(used[at]) for pool, at in rows.items()},
    )


def _full_pool(memory: PoolMemory, row: int, column: int) -> FullPool:
    return FullPool(
        int(memory.ranks[row]),
        memory.pools[column],
        int(memory.used_bytes[row, column]),
        int(memory.limit_bytes[row, column]),
    )
