"""The metric registry: each metric is declared here, once.

The Prometheus spelling, the documentation page, the column comments and the axis titles are derived from
these rows. Names follow OpenTelemetry: dotted, no ``_total``, the unit apart (UCUM).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from moescope.schemas import attributes as a
from moescope.schemas.errors import UnknownMetricError


class Kind(StrEnum):
    """The OTLP point that carries a metric."""

    COUNTER = "counter"
    UP_DOWN_COUNTER = "up_down_counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Encoding(StrEnum):
    """How values sit in the point.

    The index encodings use a histogram whose bucket i *is* index i: ``explicit_bounds = [0 … n−2]``,
    ``bucket_counts[n]``, integers only, ``sum``, ``min`` and ``max`` unset.
    """

    PLAIN = "plain"
    BY_EXPERT = "by_expert"
    BY_PEER_RANK = "by_peer_rank"
    BY_LAYER = "by_layer"


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the registry.

    ``attributes`` are point attribute keys; ``bounds`` are the bucket bounds of a plain histogram, in
    ``unit``; ``snapshot`` marks a state that must never be summed over time; ``is_steady`` marks a state that
    hardly ever changes: it travels when it does, and with every n-th window.
    """

    name: str
    kind: Kind
    unit: str
    attributes: tuple[str, ...]
    description: str
    encoding: Encoding = Encoding.PLAIN
    bounds: tuple[float, ...] = ()
    snapshot: bool = False
    is_steady: bool = False

    @property
    def is_index_encoded(self) -> bool:
        """Whether bucket i means index i. Such a metric never stands on a Prometheus page."""
        return self.encoding is not Encoding.PLAIN

    @property
    def prometheus_name(self) -> str:
        """The name on a Prometheus page, by the OpenTelemetry to Prometheus mapping."""
        name = self.name.replace(".", "_")
        suffix = _PROMETHEUS_UNITS.get(self.unit, "")
        if suffix and not name.endswith(suffix):
            name += suffix
        return name + "_total" if self.kind is Kind.COUNTER else name


_PROMETHEUS_UNITS: Final = {"s": "_seconds", "By": "_bytes", "1": "_ratio"}

# GenAI semantic conventions (semantic-conventions-genai, 2026-05), continued upwards for a context of a
# million tokens: time to first token to 160 s, time per output token down to 1 ms.
_TTFT_BOUNDS: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0),
)
_TPOT_BOUNDS: Final = (
    *(0.001, 0.0025, 0.005),
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
)
_REQUEST_BOUNDS: Final = (
    *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
)
_STEP_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
# An all-to-all within a node takes tens of microseconds, one that waits for a slow rank tens of milliseconds.
_DISPATCH_BOUNDS: Final = (
    *(0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005),
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
_STEP_TOKEN_BOUNDS: Final = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0)
_EXPORT_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_GEN_AI: Final = (a.OPERATION, a.PROVIDER, a.REQUEST_MODEL)

EXPERT_TOKENS: Final = Metric(
    "moe.expert.tokens",
    Kind.HISTOGRAM,
    "{token}",
    (a.LAYER, a.PHASE),
    "Token assignments per routed expert: bucket i is logical expert i.",
    Encoding.BY_EXPERT,
)
EXPERT_DURATION: Final = Metric(
    "moe.expert.duration",
    Kind.HISTOGRAM,
    "ns",
    (a.LAYER, a.PHASE, a.SOURCE),
    "Time spent computing each expert, in nanoseconds: bucket i is logical expert i.",
    Encoding.BY_EXPERT,
)
EXPERT_GROUP_DURATION: Final = Metric(
    "moe.expert.group.duration",
    Kind.HISTOGRAM,
    "ns",
    (a.PHASE,),
    "Time of the grouped kernel that computes all experts of a layer at once, in nanoseconds: bucket i is "
    "layer i of the model. Where calls are sampled, scaled up to all calls.",
    Encoding.BY_LAYER,
)
EXPERT_FAILOVERS: Final = Metric(
    "moe.expert.failovers",
    Kind.HISTOGRAM,
    "{failover}",
    (a.LAYER, a.REASON),
    "Times that another copy served in place of each expert: bucket i is logical expert i.",
    Encoding.BY_EXPERT,
)
EXPERT_REPLICAS: Final = Metric(
    "moe.expert.replicas",
    Kind.HISTOGRAM,
    "{replica}",
    (a.LAYER,),
    "Copies of each expert on this rank, a snapshot: bucket i is logical expert i.",
    Encoding.BY_EXPERT,
    snapshot=True,
)
EXPERT_WEIGHT_SIZE: Final = Metric(
    "moe.expert.weight.size",
    Kind.GAUGE,
    "By",
    (a.LAYER,),
    "Bytes of one physical expert's weights; without a layer: of every MoE layer.",
    is_steady=True,
)
RANK_IO: Final = Metric(
    "moe.rank.io",
    Kind.HISTOGRAM,
    "By",
    (a.LAYER, a.PHASE, a.DIRECTION),
    "Bytes exchanged with each peer rank: bucket i is EP rank i. The layer is opt-in.",
    Encoding.BY_PEER_RANK,
)
RANK_TOKENS: Final = Metric(
    "moe.rank.tokens",
    Kind.HISTOGRAM,
    "{token}",
    (a.PHASE,),
    "Tokens sent to each peer rank, each once however many of its experts live there: bucket i is EP rank i.",
    Encoding.BY_PEER_RANK,
)
RANK_ASSIGNMENTS: Final = Metric(
    "moe.rank.assignments",
    Kind.HISTOGRAM,
    "{assignment}",
    (a.PHASE,),
    "(token, expert) assignments sent to each peer rank, what `moe.rank.tokens` would be without "
    "deduplication: bucket i is EP rank i.",
    Encoding.BY_PEER_RANK,
)
DISPATCH_WAIT: Final = Metric(
    "moe.dispatch.wait",
    Kind.HISTOGRAM,
    "ns",
    (a.STAGE,),
    "Time this rank waited for each peer rank, in nanoseconds: bucket i is EP rank i.",
    Encoding.BY_PEER_RANK,
)
DISPATCH_DURATION: Final = Metric(
    "moe.dispatch.duration",
    Kind.HISTOGRAM,
    "s",
    (a.STAGE, a.PHASE, a.LAYER),
    "Duration of one dispatch or combine, waiting included. The layer is opt-in.",
    bounds=_DISPATCH_BOUNDS,
)
STEP_DURATION: Final = Metric(
    "moe.step.duration",
    Kind.HISTOGRAM,
    "s",
    (a.PHASE,),
    "Duration of one forward pass.",
    bounds=_STEP_BOUNDS,
)
STEP_TOKENS: Final = Metric(
    "moe.step.tokens",
    Kind.HISTOGRAM,
    "{token}",
    (a.PHASE,),
    "Tokens computed by one forward pass.",
    bounds=_STEP_TOKEN_BOUNDS,
)
MEMORY_USAGE: Final = Metric(
    "moe.memory.usage",
    Kind.UP_DOWN_COUNTER,
    "By",
    (a.POOL,),
    "Device memory in use, by pool.",
)
MEMORY_LIMIT: Final = Metric(
    "moe.memory.limit",
    Kind.UP_DOWN_COUNTER,
    "By",
    (a.POOL,),
    "Device memory that a pool may use.",
    is_steady=True,
)
KDA_STATE_SLOTS: Final = Metric(
    "moe.kda_state.slots",
    Kind.UP_DOWN_COUNTER,
    "{slot}",
    (),
    "KDA state slots in use.",
)
KDA_STATE_SLOTS_LIMIT: Final = Metric(
    "moe.kda_state.slots.limit",
    Kind.UP_DOWN_COUNTER,
    "{slot}",
    (),
    "KDA state slots that exist.",
    is_steady=True,
)
KDA_STATE_COPIES: Final = Metric(
    "moe.kda_state.copies",
    Kind.COUNTER,
    "{copy}",
    (a.REASON,),
    "KDA state slots copied.",
)
MLA_KV_CACHE_BLOCKS: Final = Metric(
    "moe.mla_kv_cache.blocks",
    Kind.UP_DOWN_COUNTER,
    "{block}",
    (),
    "MLA KV cache blocks in use.",
)
MLA_KV_CACHE_BLOCKS_LIMIT: Final = Metric(
    "moe.mla_kv_cache.blocks.limit",
    Kind.UP_DOWN_COUNTER,
    "{block}",
    (),
    "MLA KV cache blocks that exist.",
    is_steady=True,
)
PREFIX_CACHE_TOKENS: Final = Metric(
    "moe.prefix_cache.tokens",
    Kind.COUNTER,
    "{token}",
    (a.RESULT,),
    "Prompt tokens looked up in the prefix cache.",
)
TOKENS: Final = Metric(
    "moe.tokens",
    Kind.COUNTER,
    "{token}",
    (a.PHASE, a.EXCLUDED),
    "Token rows computed, as the engine scheduled them; rows that are no part of the load name the reason.",
)
REQUESTS_RUNNING: Final = Metric(
    "moe.requests.running",
    Kind.UP_DOWN_COUNTER,
    "{request}",
    (),
    "Requests being computed.",
)
REQUESTS_WAITING: Final = Metric(
    "moe.requests.waiting",
    Kind.UP_DOWN_COUNTER,
    "{request}",
    (),
    "Requests queued.",
)
REQUESTS_FINISHED: Final = Metric(
    "moe.requests.finished",
    Kind.COUNTER,
    "{request}",
    (a.CONTRACT,),
    "Requests that finished, by whether they kept the latency contract of the settings (goodput).",
)
REQUEST_OUTPUT_TOKENS: Final = Metric(
    "moe.request.output_tokens",
    Kind.COUNTER,
    "{token}",
    (a.CONTRACT,),
    "Output tokens of finished requests, by whether the request kept the latency contract.",
)
TIME_TO_FIRST_TOKEN: Final = Metric(
    "gen_ai.server.time_to_first_token",
    Kind.HISTOGRAM,
    "s",
    _GEN_AI,
    "Time from the arrival of a request to its first token (TTFT).",
    bounds=_TTFT_BOUNDS,
)
TIME_PER_OUTPUT_TOKEN: Final = Metric(
    "gen_ai.server.time_per_output_token",
    Kind.HISTOGRAM,
    "s",
    _GEN_AI,
    "(end to end − TTFT) / (output tokens − 1) per request (TPOT); undefined for one output token.",
    bounds=_TPOT_BOUNDS,
)
REQUEST_DURATION: Final = Metric(
    "gen_ai.server.request.duration",
    Kind.HISTOGRAM,
    "s",
    _GEN_AI,
    "Duration of a request, end to end.",
    bounds=_REQUEST_BOUNDS,
)
REQUEST_QUEUE_DURATION: Final = Metric(
    "moe.request.queue.duration",
    Kind.HISTOGRAM,
    "s",
    _GEN_AI,
    "Time a request waited before it was first scheduled.",
    bounds=_TTFT_BOUNDS,
)
INTER_TOKEN_LATENCY: Final = Metric(
    "moe.request.inter_token_latency",
    Kind.HISTOGRAM,
    "s",
    _GEN_AI,
    "Gap between two neighbouring output tokens (ITL).",
    bounds=_TPOT_BOUNDS,
)
GPU_UTILIZATION: Final = Metric(
    "hw.gpu.utilization",
    Kind.GAUGE,
    "1",
    (a.HW_ID,),
    "Fraction of time that the GPU was busy.",
)
GPU_MEMORY_USAGE: Final = Metric(
    "hw.gpu.memory.usage",
    Kind.UP_DOWN_COUNTER,
    "By",
    (a.HW_ID,),
    "GPU memory in use.",
)
GPU_MEMORY_LIMIT: Final = Metric(
    "hw.gpu.memory.limit",
    Kind.UP_DOWN_COUNTER,
    "By",
    (a.HW_ID,),
    "GPU memory that exists.",
    is_steady=True,
)
GPU_IO: Final = Metric(
    "hw.gpu.io",
    Kind.COUNTER,
    "By",
    (a.HW_ID, a.DIRECTION),
    "Bytes moved over the GPU's links.",
)
TELEMETRY_EXPORT_DURATION: Final = Metric(
    "moe.telemetry.export.duration",
    Kind.HISTOGRAM,
    "s",
    (),
    "Time taken to close, pack and send one window, failed attempts included.",
    bounds=_EXPORT_BOUNDS,
)
TELEMETRY_EXPORT_FAILURES: Final = Metric(
    "moe.telemetry.export.failures",
    Kind.COUNTER,
    "{attempt}",
    (a.REASON,),
    "Export attempts that were not acknowledged; the window was kept and tried again.",
)
TELEMETRY_QUEUE_SIZE: Final = Metric(
    "moe.telemetry.queue.size",
    Kind.UP_DOWN_COUNTER,
    "By",
    (),
    "Most bytes that waited for their acknowledgement since the window before; 0 when all went at once.",
)

METRICS: Final[tuple[Metric, ...]] = (
    EXPERT_TOKENS,
    EXPERT_DURATION,
    EXPERT_GROUP_DURATION,
    EXPERT_FAILOVERS,
    EXPERT_REPLICAS,
    EXPERT_WEIGHT_SIZE,
    RANK_IO,
    RANK_TOKENS,
    RANK_ASSIGNMENTS,
    DISPATCH_WAIT,
    DISPATCH_DURATION,
    STEP_DURATION,
    STEP_TOKENS,
    MEMORY_USAGE,
    MEMORY_LIMIT,
    KDA_STATE_SLOTS,
    KDA_STATE_SLOTS_LIMIT,
    KDA_STATE_COPIES,
    MLA_KV_CACHE_BLOCKS,
    MLA_KV_CACHE_BLOCKS_LIMIT,
    PREFIX_CACHE_TOKENS,
    TOKENS,
    REQUESTS_RUNNING,
    REQUESTS_WAITING,
    REQUESTS_FINISHED,
    REQUEST_OUTPUT_TOKENS,
    TIME_TO_FIRST_TOKEN,
    TIME_PER_OUTPUT_TOKEN,
    REQUEST_DURATION,
    REQUEST_QUEUE_DURATION,
    INTER_TOKEN_LATENCY,
    GPU_UTILIZATION,
    GPU_MEMORY_USAGE,
    GPU_MEMORY_LIMIT,
    GPU_IO,
    TELEMETRY_EXPORT_DURATION,
    TELEMETRY_EXPORT_FAILURES,
    TELEMETRY_QUEUE_SIZE,
)

_BY_NAME: Final = {metric.name: metric for metric in METRICS}


def get_metric(name: str) -> Metric:
    """Return the registry row of ``name``.

    Raises:
        UnknownMetricError: the registry has no such row.
    """
    try:
        return _BY_NAME[name]
    except KeyError:
        raise UnknownMetricError(name) from None


def is_registered(name: str) -> bool:
    """Whether the registry has a row of that name."""
    return name in _BY_NAME
