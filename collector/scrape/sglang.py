"""What SGLang 0.5.23 says on its page (``sglang/srt/observability/metrics_collector.py``).

Its memory gauges are in GiB, though named GB. `mamba_…_tokens` are slots of recurrent state, which is what
KDA has; the KV cache's gigabytes are the attention layers' alone. Hits of the prefix cache leave out what a
retracted request looks up again, and count every tier. Schedulers carry ranks as labels; those of one data-
parallel rank say the same, and the first of them is read. Where requests have priorities, the total has an
empty one.
"""

from __future__ import annotations

from typing import Final

from moescope.collector.scrape.page import Page, Series
from moescope.collector.scrape.rows import CounterRow, EngineTable, HistogramRow, StateRow, state_of, times
from moescope.schemas import metrics
from moescope.schemas.attributes import (
    EXCLUDED,
    PHASE,
    POOL,
    RESULT,
    CacheResult,
    Excluded,
    MemoryPool,
    Phase,
)

_GIB: Final = 2**30
_TOKENS: Final = "sglang:realtime_tokens_total"
_LOOKED_UP: Final = "sglang:prefill_effective_tokens_total"
_KV_GB: Final = Series("sglang:kv_cache_memory_usage_gb")
_KV_USED: Final = Series("sglang:kv_used_tokens")
_PAGE_TOKENS: Final = Series("sglang:page_size")
_SLOTS: Final = tuple(Series(f"sglang:mamba_{part}_tokens") for part in ("used", "available", "evictable"))


def _total(name: str) -> Series:
    return Series(name, {"priority": ""})


def _waiting(page: Page) -> float | None:
    """Everything that stands in a queue: for a turn, a grammar, or room on the other side of a transfer."""
    queues = ("queue", "grammar_queue", "prefill_bootstrap_queue", "decode_prealloc_queue")
    lengths = [_total(f"sglang:num_{queue}_reqs").total(page) for queue in queues]
    return None if lengths[0] is None else sum(length or 0.0 for length in lengths)


def _used_pages(page: Page) -> float | None:
    used, page_tokens = _KV_USED.total(page), _PAGE_TOKENS.total(page)
    return None if used is None or not page_tokens else -(-used // page_tokens)


def _slots(page: Page) -> float | None:
    """Slots that exist; None where the model has no recurrent state."""
    slots = [part.total(page) for part in _SLOTS]
    return sum(part or 0.0 for part in slots) or None


def _used_slots(page: Page) -> float | None:
    return _SLOTS[0].total(page) if _slots(page) else None


def _rows_of(phase: Phase, mode: str) -> CounterRow:
    attributes = {PHASE: phase.value, EXCLUDED: Excluded.NONE.value}
    return CounterRow(metrics.TOKENS, attributes, plus=(Series(_TOKENS, {"mode": mode}),))


def _cache(result: CacheResult, *modes: str) -> CounterRow:
    # Every mode is there from the start, at 0.
    plus = tuple(Series(_LOOKED_UP, {"mode": mode}) for mode in modes)
    return CounterRow(metrics.PREFIX_CACHE_TOKENS, {RESULT: result.value}, plus)


SGLANG: Final = EngineTable(
    engine="sglang",
    prefixes=("sglang:",),
    index_label="dp_rank",
    model_labels=("model_name",),
    rank_label="moe_ep_rank",
    role_label="engine_type",
    repeated_labels=("pp_rank", "tp_rank"),
    counters=(
        _rows_of(Phase.PREFILL, "prefill_compute"),
        _rows_of(Phase.DECODE, "decode"),
        _cache(CacheResult.HIT, "device_hit", "host_hit", "storage_hit"),
        _cache(CacheResult.MISS, "input"),
    ),
    histograms=(
        HistogramRow(metrics.TIME_TO_FIRST_TOKEN, "sglang:time_to_first_token_seconds"),
        HistogramRow(metrics.TIME_PER_OUTPUT_TOKEN, "sglang:request_time_per_output_token_seconds"),
        HistogramRow(metrics.INTER_TOKEN_LATENCY, "sglang:inter_token_latency_seconds"),
        HistogramRow(metrics.REQUEST_QUEUE_DURATION, "sglang:queue_time_seconds"),
        HistogramRow(metrics.REQUEST_DURATION, "sglang:e2e_request_latency_seconds"),
    ),
    states=(
        state_of(metrics.REQUESTS_RUNNING, _total("sglang:num_running_reqs")),
        StateRow(metrics.REQUESTS_WAITING, {}, _waiting),
        StateRow(metrics.KDA_STATE_SLOTS, {}, _used_slots),
        StateRow(metrics.KDA_STATE_SLOTS_LIMIT, {}, _slots),
        StateRow(metrics.MLA_KV_CACHE_BLOCKS, {}, _used_pages),
        state_of(metrics.MLA_KV_CACHE_BLOCKS_LIMIT, Series("sglang:num_pages")),
        state_of(
            metrics.MEMORY_USAGE,
            Series("sglang:weight_memory_usage_gb"),
            {POOL: MemoryPool.WEIGHTS.value},
            _GIB,
        ),
        state_of(
            metrics.MEMORY_USAGE,
            Series("sglang:graph_memory_usage_gb"),
            {POOL: MemoryPool.RUNTIME.value},
            _GIB,
        ),
        StateRow(
            metrics.MEMORY_USAGE,
            {POOL: MemoryPool.MLA_KV_CACHE.value},
            lambda page: times(_KV_GB.total(page), Series("sglang:full_token_usage").total(page), _GIB),
        ),
        state_of(metrics.MEMORY_LIMIT, _KV_GB, {POOL: MemoryPool.MLA_KV_CACHE.value}, _GIB),
    ),
)
