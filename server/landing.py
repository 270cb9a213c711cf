"""Blocks become the rows of the five landing tables, as Arrow.

Names, order and meaning of the columns are those of the migrations ``0001`` to ``0005``, which are the stock
ClickHouse exporter's: attribute values as text, an unset sum, minimum or maximum as 0, integers as doubles.
Counts travel in the narrowest unsigned type that holds them; the store widens them again. A K3 request is
then a quarter of its size on the way through the journal and into the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from moescope.schemas import attributes as a
from moescope.schemas.errors import RequestTooLargeError
from moescope.server.attribute_text import attribute_texts
from moescope.server.buckets import Buckets, IntArray
from moescope.server.otlp_decode import Block, PointKind

TABLES: Final[dict[PointKind, str]] = {kind: f"otel_metrics_{kind.value}" for kind in PointKind}

_TEXT_MAP: Final = pa.map_(pa.string(), pa.string())
_TIME: Final = pa.timestamp("ns", tz="UTC")
_MAX_NS: Final = 2**63 - 1
_NARROW: Final = (np.dtype("u2"), np.dtype("u4"), np.dtype("u8"))
_EXPANSION: Final = 8
"""Landing repeats a resource for every point of it; more than this many times the body is an attack."""


def land(blocks: Iterable[Block], *, max_request_bytes: int) -> dict[str, pa.Table]:
    """Return the rows of each landing table; tables without rows are left out.

    Raises:
        RequestTooLargeError: the resource attributes, repeated for every point, would not fit into memory.
    """
    by_kind: dict[PointKind, list[Block]] = {}
    for block in blocks:
        if block.points:
            by_kind.setdefault(block.kind, []).append(block)
    _check_expansion(by_kind.values(), max_request_bytes * _EXPANSION)
    return {TABLES[kind]: pa.table(_columns(kind, group)) for kind, group in by_kind.items()}


def _check_expansion(groups: Iterable[Sequence[Block]], limit: int) -> None:
    size = sum(_shared_bytes(block) * len(block.points) for group in groups for block in group)
    if size > limit:
        raise RequestTooLargeError(
            f"the resource and scope attributes repeated for every point make {size} bytes, "
            f"{limit} are allowed; send fewer points per request or shorter attributes"
        )


def _shared_bytes(block: Block) -> int:
    texts = (block.origin.resource_texts, block.origin.scope_texts)
    attributes = sum(len(key) + len(value) for text in texts for key, value in text.items())
    return attributes + len(block.name) + len(block.description) + len(block.unit)


def _columns(kind: PointKind, blocks: Sequence[Block]) -> dict[str, pa.Array]:
    points = [point for block in blocks for point in block.points]
    rows_per_block = np.array([len(block.points) for block in blocks])
    block_of_row = pa.array(np.repeat(np.arange(len(blocks)), rows_per_block))
    shared = _shared_columns(kind, blocks)
    own = {
        "Attributes": _maps([attribute_texts(point.attributes) for point in points]),
        "StartTimeUnix": _times([point.start_time_unix_nano for point in points]),
        "TimeUnix": _times([point.time_unix_nano for point in points]),
        "Flags": pa.array([point.flags for point in points], pa.uint32()),
        **_KIND_COLUMNS[kind](blocks, points),
    }
    if kind is not PointKind.SUMMARY:
        own |= _exemplar_columns(points)
    return {name: column.take(block_of_row) for name, column in shared.items()} | own


def _shared_columns(kind: PointKind, blocks: Sequence[Block]) -> dict[str, pa.Array]:
    """One row per block: what all points of a metric have in common."""
    origins = [block.origin for block in blocks]
    columns = {
        "ResourceAttributes": _maps([origin.resource_texts for origin in origins]),
        "ResourceSchemaUrl": _strings(origin.resource_schema_url for origin in origins),
        "ScopeName": _strings(origin.scope.name for origin in origins),
        "ScopeVersion": _strings(origin.scope.version for origin in origins),
        "ScopeAttributes": _maps([origin.scope_texts for origin in origins]),
        "ScopeDroppedAttrCount": pa.array(
            [origin.scope.dropped_attributes_count for origin in origins], pa.uint32()
        ),
        "ScopeSchemaUrl": _strings(origin.scope_schema_url for origin in origins),
        "ServiceName": _strings(origin.resource_texts.get(a.SERVICE_NAME, "") for origin in origins),
        "MetricName": _strings(block.name for block in blocks),
        "MetricDescription": _strings(block.description for block in blocks),
        "MetricUnit": _strings(block.unit for block in blocks),
    }
    if kind in {PointKind.SUM, PointKind.HISTOGRAM, PointKind.EXPONENTIAL_HISTOGRAM}:
        columns["AggregationTemporality"] = pa.array([block.temporality for block in blocks], pa.int32())
    if kind is PointKind.SUM:
        columns["IsMonotonic"] = pa.array([block.is_monotonic for block in blocks], pa.bool_())
    return columns


def _number_columns(_: Sequence[Block], points: Sequence[Any]) -> dict[str, pa.Array]:
    return {"Value": _doubles(map(_number, points))}


def _number(point: Any) -> float:
    kind = point.WhichOneof("value")
    return 0.0 if kind is None else float(getattr(point, kind))


def _histogram_columns(blocks: Sequence[Block], points: Sequence[Any]) -> dict[str, pa.Array]:
    buckets = [block.buckets for block in blocks if block.buckets is not None]
    return {**_distribution_columns(points), **_bucket_columns(buckets)}


def _bucket_columns(buckets: Sequence[Buckets]) -> dict[str, pa.Array]:
    counts = np.concatenate([part.counts for part in buckets])
    bounds = np.concatenate([part.bounds for part in buckets])
    return {
        "BucketCounts": _lists(_narrow(counts), np.concatenate([part.count_lengths for part in buckets])),
        "ExplicitBounds": _lists(
            _narrow_bounds(bounds), np.concatenate([part.bound_lengths for part in buckets])
        ),
    }


def _exponential_columns(_: Sequence[Block], points: Sequence[Any]) -> dict[str, pa.Array]:
    return {
        **_distribution_columns(points),
        "Scale": pa.array([point.scale for point in points], pa.int32()),
        "ZeroCount": pa.array([point.zero_count for point in points], pa.uint64()),
        "PositiveOffset": pa.array([point.positive.offset for point in points], pa.int32()),
        "PositiveBucketCounts": _count_lists([point.positive.bucket_counts for point in points]),
        "NegativeOffset": pa.array([point.negative.offset for point in points], pa.int32()),
        "NegativeBucketCounts": _count_lists([point.negative.bucket_counts for point in points]),
    }


def _distribution_columns(points: Sequence[Any]) -> dict[str, pa.Array]:
    return {
        "Count": pa.array([point.count for point in points], pa.uint64()),
        "Sum": _doubles(point.sum for point in points),
        "Min": _doubles(point.min for point in points),
        "Max": _doubles(point.max for point in points),
    }


def _summary_columns(_: Sequence[Block], points: Sequence[Any]) -> dict[str, pa.Array]:
    quantiles = [list(point.quantile_values) for point in points]
    lengths = np.array([len(items) for items in quantiles], dtype=np.int64)
    flat = [item for items in quantiles for item in items]
    return {
        "Count": pa.array([point.count for point in points], pa.uint64()),
        "Sum": _doubles(point.sum for point in points),
        "ValueAtQuantiles.Quantile": _lists(np.array([item.quantile for item in flat]), lengths),
        "ValueAtQuantiles.Value": _lists(np.array([item.value for item in flat]), lengths),
    }


def _exemplar_columns(points: Sequence[Any]) -> dict[str, pa.Array]:
    exemplars = [list(point.exemplars) for point in points]
    lengths = np.array([len(items) for items in exemplars], dtype=np.int64)
    flat = [item for items in exemplars for item in items]
    columns = {
        "FilteredAttributes": _maps([attribute_texts(item.filtered_attributes) for item in flat]),
        "TimeUnix": _times([item.time_unix_nano for item in flat]),
        "Value": _doubles(map(_number, flat)),
        "SpanId": _strings(item.span_id.hex() for item in flat),
        "TraceId": _strings(item.trace_id.hex() for item in flat),
    }
    return {
        f"Exemplars.{name}": pa.ListArray.from_arrays(_offsets(lengths), column)
        for name, column in columns.items()
    }


_KIND_COLUMNS: Final[dict[PointKind, Callable[[Sequence[Block], Sequence[Any]], dict[str, pa.Array]]]] = {
    PointKind.GAUGE: _number_columns,
    PointKind.SUM: _number_columns,
    PointKind.HISTOGRAM: _histogram_columns,
    PointKind.EXPONENTIAL_HISTOGRAM: _exponential_columns,
    PointKind.SUMMARY: _summary_columns,
}


def _strings(texts: Iterable[str]) -> pa.Array:
    return pa.array(list(texts), pa.string())


def _doubles(numbers: Iterable[float]) -> pa.Array:
    return pa.array(list(numbers), pa.float64())


def _times(nanoseconds: Sequence[int]) -> pa.Array:
    # Exemplar times are not judged; one beyond the year 2262 becomes the last instant there is.
    return pa.array([min(value, _MAX_NS) for value in nanoseconds], _TIME)


def _maps(rows: Sequence[Mapping[str, str]]) -> pa.Array:
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    keys = _strings(key for row in rows for key in row)
    values = _strings(value for row in rows for value in row.values())
    return pa.MapArray.from_arrays(_offsets(lengths), keys, values, type=_TEXT_MAP)


def _count_lists(rows: Sequence[Sequence[int]]) -> pa.Array:
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    return _lists(_narrow(np.array([value for row in rows for value in row], dtype=np.uint64)), lengths)


def _lists(values: npt.NDArray[Any], lengths: IntArray) -> pa.Array:
    return pa.ListArray.from_arrays(_offsets(lengths), pa.array(values))


def _offsets(lengths: IntArray) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.array(offsets)


def _narrow(counts: npt.NDArray[np.uint64]) -> npt.NDArray[Any]:
    largest = counts.max(initial=0)
    fitting = next(dtype for dtype in _NARROW if largest <= np.iinfo(dtype).max)
    return counts.astype(fitting, copy=False)


def _narrow_bounds(bounds: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    """Small whole numbers, as index-encoded points have them, need two bytes and not eight."""
    if len(bounds) and bounds.min() >= 0 and bounds.max() <= np.iinfo(np.uint16).max:
        whole = bounds.astype(np.uint16)
        if np.array_equal(whole, bounds):
            return whole
    return bounds
