"""What vLLM 0.32 says on its page (``vllm/v1/metrics/loggers.py``).

Token rows: a prompt's tokens that were computed here, and every generated token but each request's first,
which comes out of its prefill. Speculative decoding computes more rows than it keeps; vLLM's page does not
say.

Prefix cache: vLLM itself leaves out what a preempted request looks up again. A hit of the page is a token;
it does not tell a partial hit from a full one.

Time per output token: vLLM observes 0 for a request with one output token, which has none. The same page
counts these requests, so they are taken out again.
"""

from __future__ import annotations

from collections.abc import Iterable
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

_QUERIES: Final = Series("vllm:prefix_cache_queries_total")
_HITS: Final = Series("vllm:prefix_cache_hits_total")
_COMPUTED: Final = Series("vllm:prompt_tokens_by_source_total", {"source": "local_compute"})
_GENERATED: Final = Series("vllm:generation_tokens_total")
_FIRST_TOKENS: Final = Series("vllm:time_to_first_token_seconds_count")
_AT_MOST_ONE_TOKEN: Final = Series("vllm:request_generation_tokens_bucket", {"le": "1.0"})
_USAGE: Final = Series("vllm:kv_cache_usage_perc")
_CACHE: Final = "vllm:cache_config_info"
_MLA: Final = {POOL: MemoryPool.MLA_KV_CACHE.value}


def _cache_number(page: Page, label: str) -> float | None:
    for sample in page.of(_CACHE):
        text = sample.labels.get(label, "")
        if text.isdigit():
            return float(text)
    return None


def _is_hybrid(page: Page) -> bool:
    """Whether one pool of blocks holds both recurrent state and attention keys and values."""
    return _cache_number(page, "mamba_block_size") is not None


def _blocks(page: Page) -> float | None:
    """Blocks that requests can have: vLLM keeps one back."""
    blocks = _cache_number(page, "num_gpu_blocks")
    return None if blocks is None or _is_hybrid(page) else blocks - 1


def _used_blocks(page: Page) -> float | None:
    used = times(_USAGE.total(page), _blocks(page))
    return None if used is None else round(used)


def _cache_bytes(page: Page) -> float | None:
    return None if _is_hybrid(page) else _cache_number(page, "kv_cache_memory_bytes")


def _remarks(page: Page) -> Iterable[str]:
    if _is_hybrid(page):
        yield (
            "vLLM's page has one number for recurrent state and attention cache together: neither is "
            "reported. The plug-in tells them apart"
        )
    if page.of("vllm:request_time_per_output_token_seconds_count") and not _AT_MOST_ONE_TOKEN.samples(page):
        yield (
            "the page does not say how many requests had one output token: the time per output token counts "
            "them as 0, as vLLM does"
        )


VLLM: Final = EngineTable(
    engine="vllm",
    prefixes=("vllm:",),
    index_label="engine",
    model_labels=("model_name",),
    counters=(
        CounterRow(
            metrics.TOKENS, {PHASE: Phase.PREFILL.value, EXCLUDED: Excluded.NONE.value}, plus=(_COMPUTED,)
        ),
        CounterRow(
            metrics.TOKENS,
            {PHASE: Phase.DECODE.value, EXCLUDED: Excluded.NONE.value},
            plus=(_GENERATED,),
            minus=(_FIRST_TOKENS,),
        ),
        CounterRow(metrics.PREFIX_CACHE_TOKENS, {RESULT: CacheResult.HIT.value}, plus=(_HITS,)),
        CounterRow(
            metrics.PREFIX_CACHE_TOKENS, {RESULT: CacheResult.MISS.value}, plus=(_QUERIES,), minus=(_HITS,)
        ),
    ),
    histograms=(
        HistogramRow(metrics.TIME_TO_FIRST_TOKEN, "vllm:time_to_first_token_seconds"),
        HistogramRow(
            metrics.TIME_PER_OUTPUT_TOKEN,
            "vllm:request_time_per_output_token_seconds",
            zeros=_AT_MOST_ONE_TOKEN,
        ),
        HistogramRow(metrics.INTER_TOKEN_LATENCY, "vllm:inter_token_latency_seconds"),
        HistogramRow(metrics.REQUEST_QUEUE_DURATION, "vllm:request_queue_time_seconds"),
        HistogramRow(metrics.REQUEST_DURATION, "vllm:e2e_request_latency_seconds"),
    ),
    states=(
        state_of(metrics.REQUESTS_RUNNING, Series("vllm:num_requests_running")),
        state_of(metrics.REQUESTS_WAITING, Series("vllm:num_requests_waiting")),
        StateRow(metrics.MLA_KV_CACHE_BLOCKS, {}, _used_blocks),
        StateRow(metrics.MLA_KV_CACHE_BLOCKS_LIMIT, {}, _blocks),
        StateRow(metrics.MEMORY_USAGE, _MLA, lambda page: times(_cache_bytes(page), _USAGE.total(page))),
        StateRow(metrics.MEMORY_LIMIT, _MLA, _cache_bytes),
    ),
    remarks=_remarks,
)
