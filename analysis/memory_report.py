"""The memory of ranks, printed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.cache_state import CacheStates, Occupancy, read_cache_states
from moescope.analysis.memory import PoolMemory, read_pool_memory
from moescope.analysis.memory_outlook import MemoryOutlook, read_memory_outlook
from moescope.analysis.memory_outlook_dict import outlook_dict
from moescope.analysis.memory_outlook_report import outlook_lines
from moescope.analysis.prefix_cache import RATIO_FORMULA, PrefixCache, read_prefix_cache
from moescope.analysis.report_sections import DEFAULT_WIDTH
from moescope.analysis.span import Span
from moescope.analysis.span_sections import UNKNOWN, describe_span, json_number, print_spans
from moescope.analysis.store import Store
from moescope.analysis.text_table import Column, render_table
from moescope.schemas.attributes import MemoryPool
from moescope.schemas.settings import Settings

_COLUMNS: Final = (
    *(Column("pool", left=True), Column("mean rank"), Column("limit"), Column("fullest rank")),
    *(Column("used"), Column("of its limit"), Column("", left=True)),
)


@dataclass(frozen=True, slots=True)
class MemoryAnswer:
    """The memory of one EP group: newest states within a span."""

    span: Span
    pools: PoolMemory
    caches: CacheStates
    prefix_cache: PrefixCache
    outlook: MemoryOutlook
    full_ratio: float

    def lines(self, width: int) -> Iterator[str]:
        """See :class:`~moescope.analysis.span_sections.SpanAnswer`."""
        yield textwrap.fill(self._summary(), width)
        if len(self.pools.ranks):
            yield render_table(_COLUMNS, [self._row(pool) for pool in self.pools.pools], width)
        yield from _occupancy_lines("KDA state slots", self.caches.kda_slots, self.caches)
        yield from _occupancy_lines("MLA KV cache blocks", self.caches.mla_blocks, self.caches)
        if self.prefix_cache.ratio is not None:
            yield textwrap.fill(
                f"Prefix cache: {words.percent(self.prefix_cache.ratio)} of "
                f"{words.compact(self.prefix_cache.looked_up)} prompt tokens found ({RATIO_FORMULA}).",
                width,
            )
        if len(self.pools.ranks) or self.outlook.capacities:
            yield from outlook_lines(self.outlook, width)

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape of one EP group."""
        cache = self.prefix_cache
        return describe_span(self.span) | {
            "ranks": [self._rank_dict(row) for row in range(len(self.pools.ranks))],
            "full_pools": [
                {"ep_rank": one.rank, "pool": one.pool.value, "ratio": one.ratio} for one in self.pools.full
            ],
            "caches": [
                {"ep_rank": int(rank)}
                | _occupancy_dict("kda_slots", self.caches.kda_slots, row)
                | _occupancy_dict("mla_blocks", self.caches.mla_blocks, row)
                for row, rank in enumerate(self.caches.ranks)
            ],
            "prefix_cache": {
                "hit_tokens": int(cache.hit.sum()),
                "partial_hit_tokens": int(cache.partial_hit.sum()),
                "miss_tokens": int(cache.miss.sum()),
                "ratio": cache.ratio,
            },
            "outlook": outlook_dict(self.outlook),
        }

    def _summary(self) -> str:
        fullest = self.pools.fullest
        if not len(self.pools.ranks):
            return "No rank reported its memory by pool."
        ranks = words.count(len(self.pools.ranks), "rank")
        if fullest is None:
            return f"{ranks} reported their memory; none of the pools has a limit."
        return (
            f"{words.count(len(self.pools.full), 'pool')} of {ranks} above "
            f"{words.percent(self.full_ratio)} of the limit. Fullest: {fullest.pool.value} of rank "
            f"{fullest.rank}, {words.percent(fullest.ratio)}."
        )

    def _row(self, pool: MemoryPool) -> list[str]:
        column = self.pools.pools.index(pool)
        used, limit = self.pools.used_bytes[:, column], self.pools.limit_bytes[:, column]
        fullest = self.pools.fullest_of(pool)
        return [
            pool.value,
            words.binary_bytes(float(np.nanmean(used))),
            UNKNOWN if np.isnan(limit).all() else words.binary_bytes(float(np.nanmean(limit))),
            *(
                [UNKNOWN, UNKNOWN, UNKNOWN, ""]
                if fullest is None
                else [
                    str(fullest.rank),
                    words.binary_bytes(fullest.used_bytes),
                    words.percent(fullest.ratio),
                    "full" if fullest in self.pools.full else "",
                ]
            ),
        ]

    def _rank_dict(self, row: int) -> dict[str, Any]:
        memory, ratio = self.pools, self.pools.ratio
        return {
            "ep_rank": int(memory.ranks[row]),
            "pools": {
                pool.value: {
                    "used_bytes": json_number(memory.used_bytes[row, column]),
                    "limit_bytes": json_number(memory.limit_bytes[row, column]),
                    "ratio": json_number(ratio[row, column]),
                }
                for column, pool in enumerate(memory.pools)
            },
        }


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """The memory of every EP group."""

    answers: tuple[MemoryAnswer, ...]
    service: str | None

    @property
    def has_problem(self) -> bool:
        """Whether any pool is above the settings' share of its limit."""
        return any(answer.pools.full for answer in self.answers)

    def to_text(self, width: int = DEFAULT_WIDTH) -> str:
        """Tables for a terminal of that width."""
        return print_spans(self.answers, self.service, width)

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape: ``groups[] → ranks[] → pools{}``.

        Beside the ranks stand ``full_pools[]``, ``caches[]``, ``prefix_cache`` and ``outlook``: forecasts,
        requests that fit, what one more copy costs. Numbers are null where nothing is known.
        """
        return {"groups": [answer.to_dict() for answer in self.answers]}


def read_memory_answer(
    store: Store, span: Span, settings: Settings, contexts: Sequence[int] = ()
) -> MemoryAnswer:
    """Read everything that the report says about one EP group's memory.

    ``contexts`` are the tokens of the requests that are counted; a ladder of three if there are none.

    Raises:
        StoreError: the store cannot answer.
    """
    pools = read_pool_memory(store, span, settings)
    return MemoryAnswer(
        span,
        pools,
        read_cache_states(store, span),
        read_prefix_cache(store, span),
        read_memory_outlook(store, span, pools, settings, contexts),
        settings.memory_full_ratio,
    )


def _occupancy_lines(name: str, occupancy: Occupancy, caches: CacheStates) -> Iterator[str]:
    if not occupancy.is_stored:
        return
    ratio = occupancy.ratio
    text = f"{name}: {words.integer(int(np.nansum(occupancy.used)))} in use"
    if np.isfinite(ratio).any():
        row = int(np.nanargmax(ratio))
        text += (
            f" of {words.integer(int(np.nansum(occupancy.limit)))}; fullest on rank {caches.ranks[row]}, "
            f"{words.percent(float(ratio[row]))}"
        )
    yield f"{text}."


def _occupancy_dict(name: str, occupancy: Occupancy, row: int) -> dict[str, float | None]:
    return {
        name: json_number(float(occupancy.used[row])),
        f"{name}_limit": json_number(float(occupancy.limit[row])),
    }
