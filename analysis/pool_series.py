"""Read how full each rank's caches and pools were from window to window, and put engines together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from moescope.analysis.admission import EngineCaches
from moescope.analysis.frozen import lock, locked_int64
from moescope.analysis.memory import GROWING_POOLS
from moescope.analysis.memory_forecast import PoolSeries, Unit
from moescope.analysis.request_footprint import share_engines
from moescope.analysis.span import Span
from moescope.analysis.store import Store
from moescope.schemas import metrics
from moescope.schemas.attributes import MemoryPool
from moescope.schemas.records import FloatArray, IntArray

_MS: Final = 1000
_SHORTEST_STEP_SECONDS: Final = 10
_MOST_STEPS: Final = 90
_SILENT_MS: Final = 120_000
_SILENT_STEPS: Final = 3
"""A process that says nothing for so long and so many steps, while others do, has no room to offer."""
_COUNTED: Final = {
    MemoryPool.KDA_STATE: (Unit.SLOTS, metrics.KDA_STATE_SLOTS, metrics.KDA_STATE_SLOTS_LIMIT),
    MemoryPool.MLA_KV_CACHE: (Unit.BLOCKS, metrics.MLA_KV_CACHE_BLOCKS, metrics.MLA_KV_CACHE_BLOCKS_LIMIT),
}
_POOL_METRICS: Final = {metrics.MEMORY_USAGE.name, *(metric.name for _, metric, _ in _COUNTED.values())}
_Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class PoolStates:
    """States of caches and pools over time, of one EP group.

    Attributes:
        steps_ms: int64 ``[steps]``, Unix milliseconds, starts of the steps with any window.
        engines: ranks that share their caches, see :func:`share_engines`; those that still report.
        states: by metric, pool (or empty) and rank, float64 ``[steps]``, NaN where nothing was said.
        limits: by the metric of the usage, pool and rank: the newest one known.
    """

    steps_ms: IntArray
    engines: tuple[tuple[int, ...], ...]
    states: Mapping[_Key, FloatArray]
    limits: Mapping[_Key, float]

    def series(self) -> tuple[PoolSeries, ...]:
        """What may grow, of the first rank of each engine: in slots and blocks where known, or bytes."""
        return tuple(
            found
            for ranks in self.engines
            for pool in GROWING_POOLS
            if (found := self._series_of(ranks, pool)) is not None
        )

    def caches(self) -> tuple[EngineCaches, ...]:
        """The caches of each engine, newest states; engines without any are left out."""
        every = (self._caches_of(ranks) for ranks in self.engines)
        return tuple(one for one in every if not np.isnan([one.slots_limit, one.blocks_limit]).all())

    def running(self) -> FloatArray:
        """Running requests of the whole group, float64 ``[steps]``; NaN where nobody said."""
        rows = [row for (name, _, _), row in self.states.items() if name == metrics.REQUESTS_RUNNING.name]
        return _sum_of(rows, len(self.steps_ms))

    def used(self, pool: MemoryPool) -> FloatArray:
        """Slots or blocks in use over all engines, float64 ``[steps]``; NaN where one of them was silent."""
        _, metric, _ = _COUNTED[pool]
        rows = [self.states.get((metric.name, "", ranks[0])) for ranks in self.engines]
        return _sum_of([row for row in rows if row is not None], len(self.steps_ms))

    def _series_of(self, ranks: tuple[int, ...], pool: MemoryPool) -> PoolSeries | None:
        choices = [(Unit.BYTES, metrics.MEMORY_USAGE.name, pool.value)]
        if pool in _COUNTED:
            unit, metric, _ = _COUNTED[pool]
            choices.insert(0, (unit, metric.name, ""))
        for unit, name, at_pool in choices:
            key = (name, at_pool, ranks[0])
            states, limit = self.states.get(key), self.limits.get(key)
            if states is not None and limit is not None:
                known = np.isfinite(states)
                seconds = lock(self.steps_ms[known] / _MS)
                return PoolSeries(ranks, pool, unit, seconds, lock(states[known]), limit)
        return None

    def _caches_of(self, ranks: tuple[int, ...]) -> EngineCaches:
        rank = ranks[0]
        numbers: dict[MemoryPool, tuple[float, float, float]] = {}
        for pool, (_, metric, _) in _COUNTED.items():
            key = (metric.name, "", rank)
            limit = self.limits.get(key, np.nan)
            limit_bytes = self.limits.get((metrics.MEMORY_USAGE.name, pool.value, rank), np.nan)
            numbers[pool] = (_newest(self.states.get(key)), limit, limit_bytes / limit if limit else np.nan)
        slots, slots_limit, slot_bytes = numbers[MemoryPool.KDA_STATE]
        blocks, blocks_limit, block_bytes = numbers[MemoryPool.MLA_KV_CACHE]
        is_shared = slots_limit == blocks_limit and slot_bytes == block_bytes
        return EngineCaches(
            *(ranks, slots, slots_limit, blocks, blocks_limit, slot_bytes, block_bytes), is_shared=is_shared
        )


def read_pool_states(store: Store, span: Span) -> PoolStates:
    """Read the states of one EP group's caches and pools over a span, in steps of ten seconds or more.

    Raises:
        StoreError: the store cannot answer.
    """
    step = max(_SHORTEST_STEP_SECONDS, -(-(span.end_ms - span.start_ms) // (_MS * _MOST_STEPS)))
    return arrange_states(store.query("pool_series", step_seconds=step, **span.params()).to_pylist())


def arrange_states(rows: list[dict[str, Any]]) -> PoolStates:
    """Arrange the rows of ``queries/pool_series.sql`` on one axis of steps."""
    limit_of = {limit.name: metric.name for _, metric, limit in _COUNTED.values()}
    limit_of[metrics.MEMORY_LIMIT.name] = metrics.MEMORY_USAGE.name
    limits = {
        (limit_of[row["metric"]], row["pool"], row["ep_rank"]): float(row["states"][-1])
        for row in rows
        if row["metric"] in limit_of
    }
    said = [row for row in rows if row["metric"] not in limit_of]
    steps = np.unique(np.concatenate([np.empty(0, np.int64), *(row["steps_ms"] for row in said)]))
    steps = steps.astype(np.int64)
    states: dict[_Key, FloatArray] = {}
    for row in said:
        states[row["metric"], row["pool"], row["ep_rank"]] = lock(_on_axis(row, steps))
    engines = [ranks for ranks in _engines(states) if not _is_silent(ranks[0], states, steps)]
    return PoolStates(locked_int64(steps), tuple(engines), states, limits)


def _on_axis(row: dict[str, Any], steps: IntArray) -> FloatArray:
    line = np.full(len(steps), np.nan)
    line[np.searchsorted(steps, row["steps_ms"])] = row["states"]
    return line


def _engines(states: Mapping[_Key, FloatArray]) -> tuple[tuple[int, ...], ...]:
    names = [metric.name for _, metric, _ in _COUNTED.values()]
    ranks = sorted({rank for name, _, rank in states if name in _POOL_METRICS})
    width = len(next(iter(states.values()), ()))
    silent = np.full(width, np.nan)
    rows = [np.concatenate([states.get((name, "", rank), silent) for name in names]) for rank in ranks]
    return share_engines(ranks, np.array(rows))


def _is_silent(rank: int, states: Mapping[_Key, FloatArray], steps: IntArray) -> bool:
    """Whether a rank last spoke of its caches and pools long before the newest step of any."""
    spoke = [np.flatnonzero(np.isfinite(row)).max(initial=0) for row in _rows_of(rank, states)]
    last = max(spoke, default=0)
    return bool(steps[-1] - steps[last] > _SILENT_MS and len(steps) - 1 - last >= _SILENT_STEPS)


def _rows_of(rank: int, states: Mapping[_Key, FloatArray]) -> list[FloatArray]:
    return [row for (name, _, at), row in states.items() if at == rank and name in _POOL_METRICS]


def _newest(states: FloatArray | None) -> float:
    known = np.empty(0) if states is None else states[np.isfinite(states)]
    return float(known[-1]) if len(known) else np.nan


def _sum_of(rows: list[FloatArray], width: int) -> FloatArray:
    total: FloatArray = np.sum(rows, axis=0) if rows else np.full(width, np.nan)
    return total
