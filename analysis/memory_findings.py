"""Memory, in sentences for the Overview: what is full, and what will be soon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from moescope.analysis import words
from moescope.analysis.finding import Finding, Severity, Subject
from moescope.analysis.memory import FullPool, PoolMemory, read_pool_memory
from moescope.analysis.memory_forecast import PoolForecast, PoolSeries, forecast_pools
from moescope.analysis.memory_outlook_report import POOL_NAMES, how_full, name_of_pool, when_full
from moescope.analysis.pool_series import read_pool_states
from moescope.analysis.span import Span
from moescope.analysis.store import Store
from moescope.schemas.settings import Settings

_MAX_NAMED: Final = 3
_LASTING_SECONDS: Final = 60.0
"""What is full for a moment, as transfer buffers are, empties by itself."""
_WHAT_HAPPENS: Final = (
    "Where it is full, new requests wait and running ones may be preempted. "
    "`moescope report memory` says how many still fit."
)


def read_memory_findings(store: Store, span: Span, settings: Settings) -> tuple[Finding, ...]:
    """Read one EP group's memory over a span and say what is wrong with it.

    Raises:
        StoreError: the store cannot answer.
    """
    memory = read_pool_memory(store, span, settings)
    series = read_pool_states(store, span).series()
    return list_memory_findings(lasting(memory, series, settings), forecast_pools(series), span, settings)


def lasting(memory: PoolMemory, series: Sequence[PoolSeries], settings: Settings) -> PoolMemory:
    """Leave out pools as full that were not so throughout their newest minute."""
    by_pool = {(rank, one.pool): one for one in series for rank in one.ranks}

    def lasts(pool: FullPool) -> bool:
        one = by_pool.get((pool.rank, pool.pool))
        if one is None or not len(one.used):
            return True
        newest = one.seconds > one.seconds[-1] - _LASTING_SECONDS
        return bool((one.used[newest] > settings.memory_full_ratio * one.limit).all())

    return replace(memory, full=tuple(pool for pool in memory.full if lasts(pool)))


def list_memory_findings(
    memory: PoolMemory, forecasts: Sequence[PoolForecast], span: Span, settings: Settings
) -> tuple[Finding, ...]:
    """Say which pools are full, and which will be within the settings' time at their growth."""
    return (*_full(memory.full, span, settings), *_soon(fill_soon(memory, forecasts, settings), span))


def fill_soon(
    memory: PoolMemory, forecasts: Sequence[PoolForecast], settings: Settings
) -> tuple[PoolForecast, ...]:
    """Of the forecasts, those of pools that will be full within the settings' time, and are not yet."""
    full = {(one.rank, one.pool) for one in memory.full}
    soon = (one for one in forecasts if one.seconds <= settings.memory_forecast_seconds)
    return tuple(one for one in soon if (one.ranks[0], one.pool) not in full)


def _full(pools: Sequence[FullPool], span: Span, settings: Settings) -> Iterator[Finding]:
    for one in pools[:_MAX_NAMED]:
        yield Finding(
            Severity.PROBLEM,
            f"{POOL_NAMES[one.pool]} of rank {one.rank} is full: {words.percent(one.ratio)} of its limit.",
            f"{words.binary_bytes(one.used_bytes)} of {words.binary_bytes(one.limit_bytes)}; full is above "
            f"{words.percent(settings.memory_full_ratio)}. {_WHAT_HAPPENS}",
            one.ratio,
            span.service,
            span.ep_group or None,
            rank=one.rank,
            subject=Subject.MEMORY,
        )
    yield from _more(Severity.PROBLEM, "Full as well", len(pools), span)


def _soon(forecasts: Sequence[PoolForecast], span: Span) -> Iterator[Finding]:
    for one in forecasts[:_MAX_NAMED]:
        yield Finding(
            Severity.WARNING,
            f"{name_of_pool(one)} is full {when_full(one)} at this growth.",
            f"{how_full(one).capitalize()}. {_WHAT_HAPPENS}",
            1 / max(one.seconds, 1.0),
            span.service,
            span.ep_group or None,
            rank=one.ranks[0],
            subject=Subject.MEMORY,
        )
    yield from _more(Severity.WARNING, "Full later at this growth", len(forecasts), span)


def _more(severity: Severity, what: str, number: int, span: Span) -> Iterator[Finding]:
    """Count the pools beyond those that have a finding of their own."""
    if number > _MAX_NAMED:
        yield Finding(
            severity,
            f"{what}: {words.count(number - _MAX_NAMED, 'more pool')}.",
            "`moescope report memory` lists them.",
            0.0,
            span.service,
            span.ep_group or None,
            subject=Subject.MEMORY,
        )
