"""What Dynamo says on its pages: the front end's, and that of a worker without an engine's own metrics.

Names: ``lib/runtime/src/metrics/prometheus_names.rs`` of ai-dynamo/dynamo, and its metrics catalog for 1.7.
A worker that runs vLLM or SGLang has their names on its page too, and is read by their tables.

The front end's `queued_requests` are those without a first token yet, and `inflight_requests` holds them
too. It knows no time per output token and no queue time. Scrape either the front end or the workers of a
deployment, or give them different names: both observe the same requests.
"""

from __future__ import annotations

from typing import Final

from moescope.collector.scrape.page import Page, Series
from moescope.collector.scrape.rows import CounterRow, EngineTable, HistogramRow, StateRow, state_of, times
from moescope.schemas import metrics
from moescope.schemas.attributes import RESULT, CacheResult

_INFLIGHT: Final = Series("dynamo_frontend_inflight_requests")
_QUEUED: Final = Series("dynamo_frontend_queued_requests")
_WORKER_INFLIGHT: Final = Series("dynamo_component_inflight_requests", {"dynamo_endpoint": "generate"})
_INPUT: Final = Series("dynamo_frontend_input_sequence_tokens_sum")
_CACHED: Final = Series("dynamo_frontend_cached_tokens_sum")
_BLOCKS: Final = Series("dynamo_component_total_blocks")
_USAGE: Final = Series("dynamo_component_gpu_cache_usage_percent")  # a share, 0 to 1


def _running(page: Page) -> float | None:
    inflight = _INFLIGHT.total(page)
    if inflight is None:
        return _WORKER_INFLIGHT.total(page)
    return max(inflight - (_QUEUED.total(page) or 0.0), 0.0)


def _used_blocks(page: Page) -> float | None:
    used = times(_USAGE.total(page), _BLOCKS.total(page))
    return None if used is None else round(used)


DYNAMO: Final = EngineTable(
    engine="dynamo",
    prefixes=("dynamo_frontend_", "dynamo_component_"),
    index_label="dp_rank",
    model_labels=("model", "model_name"),
    counters=(
        CounterRow(metrics.PREFIX_CACHE_TOKENS, {RESULT: CacheResult.HIT.value}, plus=(_CACHED,)),
        CounterRow(
            metrics.PREFIX_CACHE_TOKENS, {RESULT: CacheResult.MISS.value}, plus=(_INPUT,), minus=(_CACHED,)
        ),
    ),
    histograms=(
        HistogramRow(metrics.TIME_TO_FIRST_TOKEN, "dynamo_frontend_time_to_first_token_seconds"),
        HistogramRow(metrics.INTER_TOKEN_LATENCY, "dynamo_frontend_inter_token_latency_seconds"),
        HistogramRow(metrics.REQUEST_DURATION, "dynamo_frontend_request_duration_seconds"),
    ),
    states=(
        StateRow(metrics.REQUESTS_RUNNING, {}, _running),
        state_of(metrics.REQUESTS_WAITING, _QUEUED),
        StateRow(metrics.MLA_KV_CACHE_BLOCKS, {}, _used_blocks),
        state_of(metrics.MLA_KV_CACHE_BLOCKS_LIMIT, _BLOCKS),
    ),
)
