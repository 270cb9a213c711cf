"""What comes next for the memory of an EP group, in sentences and a table."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.admission import ReplicaCost
from moescope.analysis.memory_forecast import PoolForecast
from moescope.analysis.memory_outlook import MemoryOutlook
from moescope.analysis.request_footprint import Basis
from moescope.analysis.span_sections import UNKNOWN
from moescope.analysis.text_table import Column, render_table
from moescope.schemas.attributes import MemoryPool

POOL_NAMES: Final = {
    MemoryPool.KDA_STATE: "KDA state",
    MemoryPool.MLA_KV_CACHE: "MLA KV cache",
    MemoryPool.TRANSFER: "Transfer memory",
}
"""Pools that can run out, as sentences call them."""
_MAX_FORECASTS: Final = 5
_COLUMNS: Final = (
    *(Column("context"), Column("fit, all engines"), Column("tightest"), Column("fit there")),
    *(Column("by KDA state"), Column("by MLA KV cache"), Column("ends first", left=True)),
)
_MINUTE: Final = 60
_HOUR: Final = 3600


def outlook_lines(outlook: MemoryOutlook, width: int) -> Iterator[str]:
    """Forecasts, room for requests, one more copy: lines for a terminal of that width."""
    yield ""
    for text in forecast_sentences(outlook.forecasts):
        yield textwrap.fill(text, width)
    if outlook.capacities:
        yield ""
        yield "Room for more requests beside those that run, by context (prompt + output tokens):"
        rows = [_row(outlook, column) for column in range(len(outlook.contexts))]
        yield render_table(_COLUMNS, rows, width)
        yield textwrap.fill(" ".join(_model_sentences(outlook)), width)
    if outlook.replicas:
        yield textwrap.fill(" ".join(_replica_sentences(outlook)), width)


def name_of_pool(forecast: PoolForecast) -> str:
    """``KDA state of rank 3``."""
    return f"{POOL_NAMES[forecast.pool]} of {name_of_engine(forecast.ranks)}"


def name_of_engine(ranks: Sequence[int]) -> str:
    """``rank 3``, ``ranks 0–3``: neighbours that share an engine."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]}–{ranks[-1]}"


def when_full(forecast: PoolForecast) -> str:
    """``in 12–18 min``, ``in 40 s or more``."""
    middle = forecast.seconds
    scale, unit = (1, "s") if middle < 2 * _MINUTE else (_MINUTE, "min")
    if middle >= 2 * _HOUR:
        scale, unit = _HOUR, "h"
    low = math.floor(forecast.low_seconds / scale)
    if math.isinf(forecast.high_seconds):
        return f"in {low} {unit} or more"
    high = math.ceil(forecast.high_seconds / scale)
    return f"in {low} {unit}" if low == high else f"in {low}–{high} {unit}"


def how_full(forecast: PoolForecast) -> str:
    """``66 of 83 slots in use, 15 more a minute for 6 min``."""
    amounts = (forecast.used, forecast.limit, forecast.per_minute)
    if forecast.unit == "bytes":
        used, limit, more = map(words.binary_bytes, amounts)
        unit = ""
    else:
        used, limit = (words.integer(round(amount)) for amount in amounts[:2])
        more, unit = words.compact(amounts[2]), f" {forecast.unit}"
    return (
        f"{used} of {limit}{unit} in use, {more} more a minute for {words.duration(forecast.stretch_seconds)}"
    )


def context_label(tokens: int) -> str:
    """``8k``, ``1M`` in powers of 1024, and any other number as it is."""
    for scale, prefix in ((1024**2, "M"), (1024, "k")):
        if tokens >= scale and tokens % scale == 0:
            return f"{tokens // scale}{prefix}"
    return words.integer(tokens)


def forecast_sentences(forecasts: Sequence[PoolForecast]) -> Iterator[str]:
    """When pools are full at their growth, or that none grows steadily."""
    if not forecasts:
        yield "No pool grows steadily enough to say when it would be full."
        return
    for one in forecasts[:_MAX_FORECASTS]:
        yield f"At this growth {name_of_pool(one)} is full {when_full(one)}: {how_full(one)}."
    if len(forecasts) > _MAX_FORECASTS:
        yield f"{words.count(len(forecasts) - _MAX_FORECASTS, 'more pool')} would be full later."


def _row(outlook: MemoryOutlook, column: int) -> list[str]:
    tightest = outlook.tightest(column)
    label = context_label(outlook.contexts[column])
    if tightest is None:
        return [label, *[UNKNOWN] * 5, ""]
    one = tightest.admissions[column]
    return [
        label,
        _count(outlook.fits(column)),
        name_of_engine(tightest.caches.ranks),
        _count(one.fits),
        _count(one.by_kda),
        _count(one.by_mla),
        "" if one.binds is None else POOL_NAMES[one.binds],
    ]


def _model_sentences(outlook: MemoryOutlook) -> Iterator[str]:
    crossings = [one.crossover_tokens for one in outlook.capacities if one.crossover_tokens is not None]
    if crossings:
        tokens = words.compact(float(np.median(crossings)))
        yield f"Up to about {tokens} tokens KDA state ends first, beyond the MLA KV cache (median engine)."
    if any(one.caches.is_shared for one in outlook.capacities):
        yield "Both are lent from one set of blocks and compete: what is free may go to either."
    yield from _request_sentences(outlook)


def _request_sentences(outlook: MemoryOutlook) -> Iterator[str]:
    model = outlook.model
    if any(not math.isnan(one.caches.slots_limit) for one in outlook.capacities):
        slots = words.count(round(model.slots_per_request), "KDA state slot")
        how = "measured: so many come and go with one" if model.slots_basis is Basis.MEASURED else "assumed"
        yield f"A request holds {slots} ({how})."
        if outlook.idle_slots:
            yield (
                f"{words.integer(round(outlook.idle_slots))} slots in use belong to no running request "
                "(checkpoints, kept sessions): an engine that lets go of them takes more."
            )
    if model.tokens_per_block is None:
        yield "Tokens of an MLA block are not known: MOESCOPE_MLA_BLOCK_TOKENS says what the engine has."
    elif model.block_basis is Basis.SETTING:
        yield f"An MLA block holds {model.tokens_per_block:.0f} tokens (setting)."
    else:
        yield (
            f"An MLA block holds about {model.tokens_per_block:.0f} tokens (measured from running requests, "
            "right to about a third; MOESCOPE_MLA_BLOCK_TOKENS says it exactly)."
        )


def _replica_sentences(outlook: MemoryOutlook) -> Iterator[str]:
    costs = outlook.replicas
    largest = max(costs, key=lambda one: one.bytes)
    yield (
        f"One more copy of an expert in each of {words.count(outlook.replica_layers, 'layer')} costs a rank "
        f"{words.binary_bytes(largest.bytes)}."
    )
    known = [one for one in costs if one.headroom_bytes is not None]
    if not known:
        yield f"How much memory the devices have left is not known. {_taken(largest, outlook)}"
        return
    tightest = min(known, key=lambda one: (one.headroom_bytes or 0) - one.bytes)
    headroom = words.binary_bytes(tightest.headroom_bytes or 0)
    if tightest.fits:
        copies = words.copies((tightest.headroom_bytes or 0) // tightest.bytes if tightest.bytes else 0)
        yield f"It fits every rank: the fullest, {tightest.rank}, has {headroom} free, room for {copies}."
    else:
        yield f"It does not fit rank {tightest.rank}, where {headroom} are free. {_taken(tightest, outlook)}"


def _taken(cost: ReplicaCost, outlook: MemoryOutlook) -> str:
    by_kda, by_mla = cost.displaced(outlook.model, outlook.contexts[0])
    label = context_label(outlook.contexts[0])
    parts = []
    if cost.slots is not None and by_kda is not None:
        parts.append(f"from KDA state {words.count(cost.slots, 'slot')}, {words.count(by_kda, 'request')}")
    if cost.blocks is not None and by_mla is not None:
        blocks = words.count(cost.blocks, "block")
        parts.append(f"from the MLA KV cache {blocks}, {words.count(by_mla, 'request')} of {label}")
    return f"It would take {'; or '.join(parts)}." if parts else ""


def _count(number: int | None) -> str:
    return UNKNOWN if number is None else words.integer(number)
