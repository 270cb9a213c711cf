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


_NOT_ON_PAGE: Final = absent("no engine has it on its page")
_ONE_PROCESS: Final = absent("one process, no peers")
_NO_SERVER: Final = absent("a library, not a server: no requests, no pools")
_ONE_KERNEL: Final = Cell(
    Fill.APPORTIONED, "one grouped kernel: `moe.expert.group.duration`, shared out by tokens"
)
_TIMED: Final = sampled("a random share of forward passes, not in replayed CUDA graphs")
_NVML: Final = measured("where NVML is")

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
        transformers=_ONE_KERNEL,
        page=_NOT_ON_PAGE,
    ),
    _row(
        m.EXPERT_GROUP_DURATION,
        "expert_latency",
        "expert_load",
        vllm=_TIMED,
        sglang=absent("no seam around its kernels"),
        transformers=absent("no seam around its kernels"),
        page=_NOT_ON_PAGE,
    ),
    _row(
        m.EXPERT_FAILOVERS,
        "expert_failovers",
        "expert_load",
        vllm=absent("serves no expert from another copy"),
        sglang=absent("does not say so"),
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
        sglang=absent("not read yet"),
        transformers=absent("not read yet"),
        page=_NOT_ON_PAGE,
    ),
    _row(
        m.RANK_IO,
        "rank_traffic",
        "traffic",
        vllm=MEASURED,
        sglang=absent("DeepEP does not say bytes"),
        transformers=_ONE_PROCESS,
        page=_NOT_ON_PAGE,
    ),
    _row(
        m.RANK_TOKENS,
        "rank_traffic",
        "traffic",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=_ONE_PROCESS,
        page=_NOT_ON_PAGE,
    ),
    _row(
        m.RANK_ASSIGNMENTS,
        "rank_traffic",
        "traffic",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=_ONE_PROCESS,
        page=_NOT_ON_PAGE,
    ),
    _row(
        m.DISPATCH_WAIT,
        "dispatch_wait",
        "traffic",
        vllm=absent("its all-to-all managers have no wait per peer"),
        sglang=measured("DeepEP low latency"),
        transformers=_ONE_PROCESS,
        page=_NOT_ON_PAGE,
    ),
    _row(
        m.DISPATCH_DURATION,
        "dispatch_time",
        "latency",
        vllm=_TIMED,
        sglang=absent("no seam"),
        transformers=_ONE_PROCESS,
        page=_NOT_ON_PAGE,
    ),
    _row(
        m.STEP_DURATION,
        "step_time",
        "latency",
        vllm=MEASURED,
        sglang=absent("x"),
        transformers=absent("x"),
        page=absent("x"),
    ),
    _row(
        m.STEP_TOKENS,
        "step_time",
        "latency",
        vllm=MEASURED,
        sglang=absent("x"),
        transformers=absent("x"),
        page=absent("x"),
    ),
    _row(
        m.MEMORY_USAGE,
        "memory_by_pool",
        "memory",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=absent("x"),
        page=MEASURED,
    ),
    _row(
        m.MEMORY_LIMIT,
        "memory_by_pool",
        "memory",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=absent("x"),
        page=MEASURED,
    ),
    _row(
        m.KDA_STATE_SLOTS,
        "cache_state",
        "memory",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=_NO_SERVER,
        page=MEASURED,
    ),
    _row(
        m.KDA_STATE_SLOTS_LIMIT,
        "cache_state",
        "memory",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=_NO_SERVER,
        page=MEASURED,
    ),
    _row(
        m.KDA_STATE_COPIES,
        "cache_state",
        "memory",
        vllm=absent("x"),
        sglang=absent("x"),
        transformers=_NO_SERVER,
        page=absent("x"),
    ),
    _row(
        m.MLA_KV_CACHE_BLOCKS,
        "cache_state",
        "memory",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=_NO_SERVER,
        page=MEASURED,
    ),
    _row(
        m.MLA_KV_CACHE_BLOCKS_LIMIT,
        "cache_state",
        "memory",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=_NO_SERVER,
        page=MEASURED,
    ),
    _row(
        m.PREFIX_CACHE_TOKENS,
        "prefix_cache",
        "memory",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=_NO_SERVER,
        page=MEASURED,
    ),
    _row(
        m.TOKENS,
        "tokens_per_second telemetry_health",
        "health",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=MEASURED,
        page=MEASURED,
    ),
    _row(
        m.REQUESTS_RUNNING,
        "request_load",
        "latency",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=_NO_SERVER,
        page=MEASURED,
    ),
    _row(
        m.REQUESTS_WAITING,
        "request_load",
        "latency",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=_NO_SERVER,
        page=MEASURED,
    ),
    _row(
        m.REQUESTS_FINISHED,
        "goodput",
        "latency",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=_NO_SERVER,
        page=absent("x"),
    ),
    _row(
        m.REQUEST_OUTPUT_TOKENS,
        "goodput",
        "latency",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=_NO_SERVER,
        page=absent("x"),
    ),
    _row(
        m.TIME_TO_FIRST_TOKEN,
        "request_latency",
        "latency",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=_NO_SERVER,
        page=MEASURED,
    ),
    _row(
        m.TIME_PER_OUTPUT_TOKEN,
        "request_latency",
        "latency",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=_NO_SERVER,
        page=MEASURED,
    ),
    _row(
        m.REQUEST_DURATION,
        "request_latency",
        "latency",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=_NO_SERVER,
        page=MEASURED,
    ),
    _row(
        m.REQUEST_QUEUE_DURATION,
        "request_latency",
        "latency",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=_NO_SERVER,
        page=MEASURED,
    ),
    _row(
        m.INTER_TOKEN_LATENCY,
        "request_latency",
        "latency",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=_NO_SERVER,
        page=MEASURED,
    ),
    _row(
        m.GPU_UTILIZATION,
        "gpu",
        "health",
        vllm=_NVML,
        sglang=_NVML,
        transformers=absent("x"),
        page=absent("x"),
    ),
    _row(
        m.GPU_MEMORY_USAGE,
        "gpu",
        "health",
        vllm=_NVML,
        sglang=_NVML,
        transformers=absent("x"),
        page=absent("x"),
    ),
    _row(
        m.GPU_MEMORY_LIMIT,
        "gpu",
        "health",
        vllm=_NVML,
        sglang=_NVML,
        transformers=absent("x"),
        page=absent("x"),
    ),
    _row(m.GPU_IO, "gpu", "health", vllm=_NVML, sglang=_NVML, transformers=absent("x"), page=absent("x")),
    _row(
        m.TELEMETRY_EXPORT_DURATION,
        "otel_metrics_histogram",
        "health",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=MEASURED,
        page=MEASURED,
    ),
    _row(
        m.TELEMETRY_EXPORT_FAILURES,
        "telemetry_health",
        "health",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=MEASURED,
        page=MEASURED,
    ),
    _row(
        m.TELEMETRY_QUEUE_SIZE,
        "otel_metrics_sum",
        "health",
        vllm=MEASURED,
        sglang=MEASURED,
        transformers=MEASURED,
        page=MEASURED,
    ),
)

_BY_NAME: Final = {row.metric.name: row for row in COVERAGE}


def coverage_of(metric: Metric) -> Coverage:
    """The row of a metric; every registered metric has one."""
    return _BY_NAME[metric.name]
