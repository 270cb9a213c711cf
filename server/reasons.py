"""Why a point is rejected: a word for the counter, a sentence for the sender."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from moescope.schemas import attributes as a
from moescope.schemas.metrics import TOKENS

MAX_REASON_CHARACTERS: Final = 64
"""Of the reasons that are an open vocabulary: a short word, as it becomes a label of a Prometheus page."""


class Reason(StrEnum):
    """The closed vocabulary of the ``reason`` label."""

    NO_VALUE = "no_value"
    NOT_FINITE = "not_finite"
    NEGATIVE_COUNTER = "negative_counter"
    NEGATIVE_DURATION = "negative_duration"
    NO_TIME = "no_time"
    FUTURE = "future"
    TOO_OLD = "too_old"
    START_AFTER_END = "start_after_end"
    NO_TEMPORALITY = "no_temporality"
    NOT_DELTA = "not_delta"
    NOT_A_STATE = "not_a_state"
    NEGATIVE_STATE = "negative_state"
    PHASE = "phase"
    COMPONENT = "component"
    EXCLUDED = "excluded"
    SOURCE = "source"
    STAGE = "stage"
    POOL = "pool"
    RESULT = "result"
    CONTRACT = "contract"
    DIRECTION = "direction"
    FAILOVER_REASON = "failover_reason"
    COPY_REASON = "copy_reason"
    LONG_REASON = "long_reason"
    BUCKET_MISMATCH = "bucket_mismatch"
    BOUNDS_NOT_INCREASING = "bounds_not_increasing"
    COUNT_MISMATCH = "count_mismatch"
    COUNT_OUT_OF_RANGE = "count_out_of_range"
    INDEX_BOUNDS = "index_bounds"
    NO_LAYER = "no_layer"
    LAYER_OUT_OF_RANGE = "layer_out_of_range"
    EXPERT_COUNT = "expert_count"
    RANK_COUNT = "rank_count"
    LAYER_COUNT = "layer_count"
    SHAPE_CHANGED = "shape_changed"


def _one_of(key: str, vocabulary: type[StrEnum]) -> str:
    return f"the attribute {key} must be one of {', '.join(word.value for word in vocabulary)}"


SENTENCES: Final[dict[Reason, str]] = {
    Reason.NO_VALUE: "the point carries no value",
    Reason.NOT_FINITE: "a value is NaN or infinite; leave a point without a number out",
    Reason.NEGATIVE_COUNTER: "a monotonic sum is negative; send an UpDownCounter or a positive change",
    Reason.NEGATIVE_DURATION: "a duration is negative; measure it with a monotonic clock",
    Reason.NO_TIME: "time_unix_nano is 0; set the end of the window",
    Reason.FUTURE: "the point lies further in the future than max_future_seconds; check the sender's clock",
    Reason.TOO_OLD: "the point lies further in the past than max_age_seconds",
    Reason.START_AFTER_END: "start_time_unix_nano lies after time_unix_nano",
    Reason.NO_TEMPORALITY: "the aggregation temporality is unspecified; OTLP asks for delta or cumulative",
    Reason.NOT_DELTA: (
        "this metric is summed over its windows and must come as deltas (metrics of the OpenTelemetry "
        "conventions may be cumulative: they are kept as they come and are part of no view); set "
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=delta at the sender, and leave the processor "
        "deltatocumulative out of a Collector in between"
    ),
    Reason.NOT_A_STATE: (
        "this metric is a state, not a change: send an up-down counter of cumulative temporality, or a gauge"
    ),
    Reason.NEGATIVE_STATE: "bytes, slots, blocks and requests cannot be fewer than none",
    Reason.PHASE: (
        f"{_one_of(a.PHASE, a.Phase)}; "
        f"rows of {TOKENS.name} that are no part of the load name why in {a.EXCLUDED}"
    ),
    Reason.COMPONENT: f"{_one_of(a.COMPONENT, a.Component)}; a resource without it is a rank",
    Reason.EXCLUDED: _one_of(a.EXCLUDED, a.Excluded),
    Reason.SOURCE: _one_of(a.SOURCE, a.DurationSource),
    Reason.STAGE: _one_of(a.STAGE, a.DispatchStage),
    Reason.POOL: _one_of(a.POOL, a.MemoryPool),
    Reason.RESULT: _one_of(a.RESULT, a.CacheResult),
    Reason.CONTRACT: _one_of(a.CONTRACT, a.Contract),
    Reason.DIRECTION: _one_of(a.DIRECTION, a.Direction),
    Reason.FAILOVER_REASON: _one_of(a.REASON, a.FailoverReason),
    Reason.COPY_REASON: _one_of(a.REASON, a.CopyReason),
    Reason.LONG_REASON: f"the attribute {a.REASON} is longer than {MAX_REASON_CHARACTERS} characters",
    Reason.BUCKET_MISMATCH: "there must be one bucket more than bounds, or neither",
    Reason.BOUNDS_NOT_INCREASING: "the bounds must be finite and strictly increasing",
    Reason.COUNT_MISMATCH: "count is not the sum of the buckets",
    Reason.COUNT_OUT_OF_RANGE: "a count is 2^53 or more, as a negative number turned unsigned would be",
    Reason.INDEX_BOUNDS: "an index-encoded point of n buckets must have the bounds 0, 1, …, n−2",
    Reason.NO_LAYER: "the attribute moe.layer is missing or is no integer",
    Reason.LAYER_OUT_OF_RANGE: "moe.layer lies outside the model's layers",
    Reason.EXPERT_COUNT: "the number of buckets is not the resource's moe.model.experts",
    Reason.RANK_COUNT: (
        "the number of buckets is not the resource's moe.ep.size, or is above 65,536; bucket i is EP rank i"
    ),
    Reason.LAYER_COUNT: (
        "the number of buckets is not the resource's moe.model.layers, or is above 65,536; bucket i is "
        "layer i of the model, dense layers included"
    ),
    Reason.SHAPE_CHANGED: (
        "the model's number of experts changed under one service.instance.id; "
        "an engine that serves another model must start with a new instance id"
    ),
}
