"""Who fills each metric, and where it is seen: the table that ``docs/metrics.md`` prints.

A cell is never empty: what an engine does not report has its reason. The simulator fills every row, and a
custom engine those that it calls :class:`~moescope.collector.recorder.Recorder` for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from moescope.schemas import metrics as m
from moescope.schemas.metrics import Metric


class Engine(StrEnum):
    """Where numbers come from, as the table's columns."""

    VLLM = "vLLM"
    SGLANG = "SGLang"
    TRANSFORMERS = "Transformers"
    PAGE = "scraped page"


class Fill(StrEnum):
    """How an engine fills a metric."""

    MEASURED = "measured"
    SAMPLED = "sampled"
    APPORTIONED = "apportioned"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Cell:
    """One engine's filling of one metric; ``note`` is the reason where it is absent."""

    fill: Fill
    note: str = ""


@dataclass(frozen=True, slots=True)
class Coverage:
    """One metric: who fills it, and the views and dashboard pages that show it."""

    metric: Metric
    cells: Mapping[Engine, Cell]
    views: tuple[str, ...]
    pages: tuple[str, ...]


MEASURED: Final = Cell(Fill.MEASURED)


def sampled(note: str) -> Cell:
    """Measured on a random share of forward passes."""
    return Cell(Fill.SAMPLED, note)


def measured(note: str) -> Cell:
    """Measured, with a remark."""
    return Cell(Fill.MEASURED, note)


def absent(reason: str) -> Cell:
    """Not reported, and why."""
    return Cell(Fill.ABSENT, reason)


def _row(
    metric: Metric, views: str, pages: str, *, vllm: Cell, sglang: Cell, transformers: Cell, page: Cell
) -> Coverage:
    cells = {
        Engine.VLLM: vllm,
        Engine.SGLANG: sglang,
        Engine.TRANSFORMERS: transformers,
        Engine.PAGE: page,
    }
    return Coverage(metric, cells, tuple(views.split()), tuple(pages.split()))


_NOT_ON_PAGE: Final = absent("on no engine's page")
_ONE_PROCESS: Final = absent("one process, no peers")
_NO_SERVER: Final = absent("a library, not a server")
_NO_STEPS: Final = absent("pages have no passes by phase")
_NO_SINGLE: Final = absent("a page has no single requests")
_NO_FAILOVER: Final = absent("the engine has no path on which another copy serves")
_ONE_KERNEL: Final = Cell(Fill.APPORTIONED, "one kernel for all experts: the row below, shared out by tokens")
_LOOP: Final = sampled('with `experts_implementation="eager"`, on CPU; else as vLLM')
_TIMED: Final = sampled("where layers run eagerly; replayed CUDA graphs have no seam")
_GROUPED: Final = sampled("on CPU; waiting for an accelerator would slow the model")
_STEPS: Final = measured("on CUDA by events, on CPU by the clock")
_ON_CPU: Final = measured("on CPU; waiting for an accelerator would slow the model")
_BY_PLACEMENT: Final = measured("an estimate where an expert has several copies")
_DEEPEP: Final = measured("DeepEP low latency, added up over warps: compare ranks, not a time")
_VLLM_BYTES: Final = measured("where layers run eagerly")
_WITH_METRICS: Final = measured("with `--enable-metrics`")
_VLLM_POOLS: Final = measured("weights, runtime, replication, transfer (on CPU: weights); caches by group")
_SGLANG_POOLS: Final = measured("weights, graphs, replication; caches with `--enable-metrics`")
_CACHE_LIMITS: Final = measured("KDA state and MLA KV cache; no engine limits the other pools")
_PAGE_LIMIT: Final = measured("KV cache; vLLM where it was sized in bytes")
_PAGE_POOLS: Final = measured("vLLM: the KV cache where sized in bytes; SGLang: weights, graphs, KV cache")
_PAGE_STATE: Final = measured("SGLang; vLLM has one number for both pools")
_PAGE_BLOCKS: Final = measured("where the model has attention alone; SGLang always")
_REBUCKETED: Final = measured("counts and sums exact, quantiles err towards slow")
_NVML: Final = measured("where NVML is")
# Rows that several metrics share.
_GPU: Final = {
    "vllm": _NVML,
    "sglang": _NVML,
    "transformers": absent("not read there"),
    "page": absent("on no page"),
}
_ITSELF: Final = {
    "vllm": MEASURED,
    "sglang": MEASURED,
    "transformers": MEASURED,
    "page": MEASURED,
}
_LATENCY: Final = {
    "vllm": MEASURED,
    "sglang": _WITH_METRICS,
    "transformers": _NO_SERVER,
    "page": _REBUCKETED,
}

COVERAGE: Final[tuple[Coverage, ...]] = (
    _row(
        m.EXPERT_TOKENS,
        "expert_activations_per_minute rank_load",
        "expert_load overview",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=MEASURED,
        page=_NOT_ON_PAGE,
    ),
    _row(
        m.EXPERT_DURATION,
        "expert_latency",
        "expert_load",
        vllm=_ONE_KERNEL,
        sglang=_ONE_KERNEL,
        transformers=_LOOP,
        page=_NOT_ON_PAGE,
    ),
    _row(
        m.EXPERT_GROUP_DURATION,
        "expert_latency",
        "expert_load",
        vllm=_TIMED,
        sglang=_TIMED,
        transformers=_GROUPED,
        page=_NOT_ON_PAGE,
    ),
    _row(
        m.EXPERT_FAILOVERS,
        "expert_failovers",
        "expert_load",
        vllm=_NO_FAILOVER,
        sglang=_NO_FAILOVER,
        transformers=_ONE_PROCESS,
        page=_NOT_ON_PAGE,
    ),
    _row(
        m.EXPERT_REPLICAS,
        "rank_load expert_memory",
        "expert_load",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=MEASURED,
        page=_NOT_ON_PAGE,
    ),
    _row(
        m.EXPERT_WEIGHT_SIZE,
        "expert_memory",
        "expert_load",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=MEASURED,
        page=_NOT_ON_PAGE,
    ),
    _row(
        m.RANK_IO,
        "rank_traffic",
        "traffic",
        vllm=_VLLM_BYTES,
        sglang=absent("its dispatchers do not say bytes by peer"),
        transformers=_ONE_PROCESS,
        page=_NOT_ON_PAGE,
    ),
    _row(
        m.RANK_TOKENS,
        "rank_traffic",
        "traffic",
        vllm=_BY_PLACEMENT,
        sglang=_BY_PLACEMENT,
        transformers=_ONE_PROCESS,
        page=_NOT_ON_PAGE,
    ),
    _row(
        m.RANK_ASSIGNMENTS,
        "rank_traffic",
        "traffic",
        vllm=_BY_PLACEMENT,
        sglang=_BY_PLACEMENT,
        transformers=_ONE_PROCESS,
        page=_NOT_ON_PAGE,
    ),
    _row(
        m.DISPATCH_WAIT,
        "dispatch_wait",
        "traffic",
        vllm=absent("all-gather does not tell peers apart; DeepEP is not hooked there"),
        sglang=_DEEPEP,
        transformers=_ONE_PROCESS,
        page=_NOT_ON_PAGE,
    ),
    _row(
        m.DISPATCH_DURATION,
        "dispatch_time",
        "latency",
        vllm=_TIMED,
        sglang=_TIMED,
        transformers=_ONE_PROCESS,
        page=_NOT_ON_PAGE,
    ),
    _row(
        m.STEP_DURATION,
        "step_time",
        "latency",
        vllm=_STEPS,
        sglang=_STEPS,
        transformers=_ON_CPU,
        page=_NO_STEPS,
    ),
    _row(
        m.STEP_TOKENS,
        "step_time",
        "latency",
        vllm=_STEPS,
        sglang=_STEPS,
        transformers=_ON_CPU,
        page=_NO_STEPS,
    ),
    _row(
        m.MEMORY_USAGE,
        "memory_by_pool",
        "memory",
        vllm=_VLLM_POOLS,
        sglang=_SGLANG_POOLS,
        transformers=measured("weights"),
        page=_PAGE_POOLS,
    ),
    _row(
        m.MEMORY_LIMIT,
        "memory_by_pool",
        "memory",
        vllm=_CACHE_LIMITS,
        sglang=_CACHE_LIMITS,
        transformers=_NO_SERVER,
        page=_PAGE_LIMIT,
    ),
    _row(
        m.KDA_STATE_SLOTS,
        "cache_state",
        "memory",
        vllm=MEASURED,
        sglang=_WITH_METRICS,
        transformers=_NO_SERVER,
        page=_PAGE_STATE,
    ),
    _row(
        m.KDA_STATE_SLOTS_LIMIT,
        "cache_state",
        "memory",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=_NO_SERVER,
        page=_PAGE_STATE,
    ),
    _row(
        m.KDA_STATE_COPIES,
        "cache_state",
        "memory",
        vllm=measured("in the mode `align`; in `none` and `all` vLLM copies none"),
        sglang=measured("in prefill; decode checkpoints are chosen on the device"),
        transformers=_NO_SERVER,
        page=absent("on no page"),
    ),
    _row(
        m.MLA_KV_CACHE_BLOCKS,
        "cache_state",
        "memory",
        vllm=MEASURED,
        sglang=_WITH_METRICS,
        transformers=_NO_SERVER,
        page=_PAGE_BLOCKS,
    ),
    _row(
        m.MLA_KV_CACHE_BLOCKS_LIMIT,
        "cache_state",
        "memory",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=_NO_SERVER,
        page=_PAGE_BLOCKS,
    ),
    _row(
        m.PREFIX_CACHE_TOKENS,
        "prefix_cache",
        "memory",
        vllm=MEASURED,
        sglang=_WITH_METRICS,
        transformers=_NO_SERVER,
        page=measured("a partial hit counts as a hit"),
    ),
    _row(
        m.TOKENS,
        "tokens_per_second telemetry_health",
        "health",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=MEASURED,
        page=measured("vLLM, SGLang"),
    ),
    _row(
        m.REQUESTS_RUNNING,
        "request_load",
        "latency",
        vllm=MEASURED,
        sglang=_WITH_METRICS,
        transformers=_NO_SERVER,
        page=MEASURED,
    ),
    _row(
        m.REQUESTS_WAITING,
        "request_load",
        "latency",
        vllm=MEASURED,
        sglang=_WITH_METRICS,
        transformers=_NO_SERVER,
        page=MEASURED,
    ),
    _row(
        m.REQUESTS_FINISHED,
        "goodput",
        "latency",
        vllm=MEASURED,
        sglang=_WITH_METRICS,
        transformers=_NO_SERVER,
        page=_NO_SINGLE,
    ),
    _row(
        m.REQUEST_OUTPUT_TOKENS,
        "goodput",
        "latency",
        vllm=MEASURED,
        sglang=_WITH_METRICS,
        transformers=_NO_SERVER,
        page=_NO_SINGLE,
    ),
    _row(
        m.TIME_TO_FIRST_TOKEN,
        "request_latency",
        "latency",
        **_LATENCY,
    ),
    _row(
        m.TIME_PER_OUTPUT_TOKEN,
        "request_latency",
        "latency",
        vllm=MEASURED,
        sglang=_WITH_METRICS,
        transformers=_NO_SERVER,
        page=measured("vLLM, less its 0 for one token; SGLang"),
    ),
    _row(
        m.REQUEST_DURATION,
        "request_latency",
        "latency",
        **_LATENCY,
    ),
    _row(
        m.REQUEST_QUEUE_DURATION,
        "request_latency",
        "latency",
        vllm=MEASURED,
        sglang=_WITH_METRICS,
        transformers=_NO_SERVER,
        page=measured("vLLM, SGLang; its first bucket is wide"),
    ),
    _row(
        m.INTER_TOKEN_LATENCY,
        "request_latency",
        "latency",
        **_LATENCY,
    ),
    _row(
        m.GPU_UTILIZATION,
        "gpu",
        "health",
        **_GPU,
    ),
    _row(
        m.GPU_MEMORY_USAGE,
        "gpu",
        "health",
        **_GPU,
    ),
    _row(
        m.GPU_MEMORY_LIMIT,
        "gpu",
        "health",
        **_GPU,
    ),
    _row(
        m.GPU_IO,
        "gpu",
        "health",
        **_GPU,
    ),
    _row(
        m.TELEMETRY_EXPORT_DURATION,
        "telemetry_health",
        "health",
        **_ITSELF,
    ),
    _row(
        m.TELEMETRY_EXPORT_FAILURES,
        "telemetry_health",
        "health",
        **_ITSELF,
    ),
    _row(
        m.TELEMETRY_QUEUE_SIZE,
        "telemetry_health",
        "health",
        **_ITSELF,
    ),
)

_BY_NAME: Final = {row.metric.name: row for row in COVERAGE}


def coverage_of(metric: Metric) -> Coverage:
    """The row of a metric; every registered metric has one."""
    return _BY_NAME[metric.name]
