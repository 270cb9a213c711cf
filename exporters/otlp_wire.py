"""Pack windows as OTLP export requests.

The heart of it is the index-encoded histogram: one point per layer whose bucket i *is* index i
(``explicit_bounds = [0 … n−2]``, ``bucket_counts[n]``; opentelemetry-proto, ``HistogramDataPoint``). All
points of one metric have the same length on the wire, so they are rows of one uint8 matrix: everything but
the times and the counts is written once, when a shape is first seen, and a window fills in its columns with
three assignments. The few plain metrics go through the generated protobuf classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from moescope.schemas.attributes import ENCODING, ENCODING_INDEX, LAYER, SNAPSHOT
from moescope.schemas.errors import ShapeError
from moescope.schemas.metrics import Kind, Metric
from moescope.schemas.records import (
    Attributes,
    AttributeValue,
    Distribution,
    IndexedCounts,
    IntArray,
    Measurement,
    Window,
)

MAX_REQUEST_BYTES: Final = 4 * 2**20 - 2**16
"""Below the 4 MiB that gRPC receivers accept by default, with room for the envelope."""

SCOPE_NAME: Final = "moescope"

_DELTA: Final = pb.AGGREGATION_TEMPORALITY_DELTA
_CUMULATIVE: Final = pb.AGGREGATION_TEMPORALITY_CUMULATIVE

_Bytes: TypeAlias = npt.NDArray[np.uint8]

# Field numbers of opentelemetry-proto 1.x, as tag bytes: (number << 3) | wire type.
_START_TIME: Final = b"\x11"
_TIME: Final = b"\x19"
_COUNT: Final = b"\x21"
_BUCKET_COUNTS: Final = b"\x32"
_EXPLICIT_BOUNDS: Final = b"\x3a"
_POINT_ATTRIBUTES: Final = b"\x4a"
_FIXED64: Final = bytes(8)

_HISTOGRAM_DATA_POINTS: Final = 1
_HISTOGRAM_TEMPORALITY: Final = b"\x10"
_METRIC_HISTOGRAM: Final = 9
_SCOPE_METRICS_METRICS: Final = 2
_SCOPE_METRICS_SCOPE: Final = 1
_RESOURCE_METRICS_RESOURCE: Final = 1
_RESOURCE_METRICS_SCOPE_METRICS: Final = 2
_REQUEST_RESOURCE_METRICS: Final = 1


class OtlpPacker:
    """Turns windows of one process into requests, each shorter than :data:`MAX_REQUEST_BYTES`.

    Args:
        resource: the process's resource attributes.
        scope_version: version of moescope.
    """

    def __init__(
        self,
        resource: Mapping[str, AttributeValue],
        scope_version: str = "",
        max_request_bytes: int = MAX_REQUEST_BYTES,
    ) -> None:
        message = Resource(attributes=_key_values(resource))
        self._resource = _field(_RESOURCE_METRICS_RESOURCE, message.SerializeToString())
        scope = InstrumentationScope(name=SCOPE_NAME, version=scope_version)
        self._scope = _field(_SCOPE_METRICS_SCOPE, scope.SerializeToString())
        self._max_request_bytes = max_request_bytes
        self._templates: dict[tuple[object, ...], _PointTemplate] = {}

    def pack(self, window: Window) -> list[bytes]:
        """Return the requests that carry ``window``; none where it has nothing to say."""
        requests: list[bytes] = []
        parts: list[bytes] = []
        size = 0
        for part in self._metrics(window):
            if parts and size + len(part) > self._max_request_bytes:
                requests.append(self._request(parts))
                parts, size = [], 0
            parts.append(part)
            size += len(part)
        if parts:
            requests.append(self._request(parts))
        return requests

    def _request(self, metrics: list[bytes]) -> bytes:
        # Outer lengths first, then one join: a request is megabytes and each nesting would copy it.
        scope_length = len(self._scope) + sum(map(len, metrics))
        scope_head = _head(_RESOURCE_METRICS_SCOPE_METRICS, scope_length)
        resource_head = _head(_REQUEST_RESOURCE_METRICS, len(self._resource) + len(scope_head) + scope_length)
        return b"".join((resource_head, self._resource, scope_head, self._scope, *metrics))

    def _metrics(self, window: Window) -> Iterator[bytes]:
        for record in window.records:
            if isinstance(record, IndexedCounts):
                yield from self._indexed(record, window)
            else:
                message = _plain_metric(record, window)
                yield _field(_SCOPE_METRICS_METRICS, message.SerializeToString())

    def _indexed(self, record: IndexedCounts, window: Window) -> Iterator[bytes]:
        counts = record.counts_per_row_index
        if not record.metric.snapshot:
            counts, rows = _without_empty_rows(counts)
        else:
            rows = np.arange(len(counts))
        if not len(rows):
            return
        layers = record.layers[rows] if len(record.layers) else None
        for template, chosen in self._templates_of(record, layers, counts):
            rows_per_metric = max(1, (self._max_request_bytes - 1024) // template.point_bytes)
            for first in range(0, len(chosen), rows_per_metric):
                part = chosen[first : first + rows_per_metric]
                points = template.fill(
                    layers[part] if layers is not None else None, counts[part], window.start_ns, window.end_ns
                )
                yield _indexed_metric(record.metric, points)

    def _templates_of(
        self, record: IndexedCounts, layers: IntArray | None, counts: IntArray
    ) -> Iterator[tuple[_PointTemplate, IntArray]]:
        """Yield the rows whose points have the same length, with their template."""
        rows, width = counts.shape
        if layers is None:
            yield self._template(record, width, None), np.arange(rows)
            return
        lengths = np.array([len(_varint(int(layer))) for layer in layers], dtype=np.int64)
        for length in np.unique(lengths):
            yield self._template(record, width, int(length)), np.flatnonzero(lengths == length)

    def _template(self, record: IndexedCounts, width: int, layer_length: int | None) -> _PointTemplate:
        key = (record.metric.name, tuple(record.attributes.items()), width, layer_length)
        template = self._templates.get(key)
        if template is None:
            template = _PointTemplate(record.metric, record.attributes, width, layer_length)
            self._templates[key] = template
        return template


class _PointTemplate:
    """One ``HistogramDataPoint`` with its tag and length; what changes is written into copies of it."""

    def __init__(self, metric: Metric, attributes: Attributes, width: int, layer_length: int | None) -> None:
        constant: dict[str, AttributeValue] = {**attributes, ENCODING: ENCODING_INDEX}
        if metric.snapshot:
            constant[SNAPSHOT] = True
        tail = b"".join(_attribute(key_value) for key_value in _key_values(constant))
        bounds = np.arange(max(width - 1, 0), dtype="<f8").tobytes()
        times = _START_TIME + _FIXED64 + _TIME + _FIXED64 + _COUNT + _FIXED64
        counts_header = _BUCKET_COUNTS + _varint(8 * width)
        layer = b"" if layer_length is None else _layer_attribute(layer_length)
        body = (
            times
            + counts_header
            + bytes(8 * width)
            + (_EXPLICIT_BOUNDS + _varint(len(bounds)) + bounds if bounds else b"")
            + tail
            + layer
        )
        point = _field(_HISTOGRAM_DATA_POINTS, body)
        start = len(point) - len(body)
        self._start_time = slice(start + 1, start + 9)
        self._time = slice(start + 10, start + 18)
        self._count = slice(start + 19, start + 27)
        first = start + len(times) + len(counts_header)
        self._counts = slice(first, first + 8 * width)
        self._layer_length = layer_length or 0
        self._point: _Bytes = np.frombuffer(point, dtype=np.uint8)
        self._table: _Bytes = np.empty((0, len(point)), dtype=np.uint8)
        self._table_layers: bytes = b""

    @property
    def point_bytes(self) -> int:
        """Length of one point on the wire."""
        return len(self._point)

    def fill(self, layers: IntArray | None, counts: IntArray, start_ns: int, end_ns: int) -> memoryview:
        """Return the points of ``counts`` ``[rows, width]`` in order; valid until the next call."""
        table = self._table_of(layers, len(counts))
        table[:, self._start_time] = _fixed64(start_ns)
        table[:, self._time] = _fixed64(end_ns)
        little_endian = np.ascontiguousarray(counts, dtype="<i8")
        table[:, self._count] = little_endian.sum(axis=1, dtype="<i8").view(np.uint8).reshape(-1, 8)
        table[:, self._counts] = little_endian.view(np.uint8).reshape(len(counts), -1)
        return table.data.cast("B")

    def _table_of(self, layers: IntArray | None, rows: int) -> _Bytes:
        """The table of the last window serves again while the same layers have counts."""
        signature = b"" if layers is None else layers.tobytes()
        if len(self._table) != rows or signature != self._table_layers:
            self._table = np.tile(self._point, (rows, 1))
            self._table_layers = signature
            if layers is not None:
                ends = b"".join(_varint(int(layer)) for layer in layers)
                self._table[:, -self._layer_length :] = np.frombuffer(ends, dtype=np.uint8).reshape(rows, -1)
        return self._table


def _indexed_metric(metric: Metric, points: memoryview) -> bytes:
    metadata: dict[str, AttributeValue] = {ENCODING: ENCODING_INDEX}
    if metric.snapshot:
        metadata[SNAPSHOT] = True
    # A state is cumulative: nobody adds it up on the way.
    temporality = _HISTOGRAM_TEMPORALITY + _varint(_CUMULATIVE if metric.snapshot else _DELTA)
    description = pb.Metric(
        name=metric.name,
        description=metric.description,
        unit=metric.unit,
        metadata=_key_values(metadata),
    ).SerializeToString()
    histogram_head = _head(_METRIC_HISTOGRAM, len(points) + len(temporality))
    length = len(description) + len(histogram_head) + len(points) + len(temporality)
    metric_head = _head(_SCOPE_METRICS_METRICS, length)
    return b"".join((metric_head, description, histogram_head, points, temporality))


def _plain_metric(record: Measurement | Distribution, window: Window) -> pb.Metric:
    metric = record.metric
    message = pb.Metric(name=metric.name, description=metric.description, unit=metric.unit)
    attributes = _key_values(record.attributes)
    if isinstance(record, Distribution):
        message.histogram.aggregation_temporality = _DELTA
        message.histogram.data_points.add(
            attributes=attributes,
            count=int(record.bucket_counts.sum()),
            sum=record.sum,
            bucket_counts=record.bucket_counts.tolist(),
            explicit_bounds=metric.bounds,
            start_time_unix_nano=window.start_ns,
            time_unix_nano=window.end_ns,
        )
        return message
    point = pb.NumberDataPoint(
        attributes=attributes, start_time_unix_nano=window.start_ns, time_unix_nano=window.end_ns
    )
    # numpy integers would otherwise travel as doubles.
    if isinstance(record.value, float):
        point.as_double = record.value
    else:
        point.as_int = int(record.value)
    if metric.kind is Kind.GAUGE:
        message.gauge.data_points.append(point)
    elif metric.kind in {Kind.COUNTER, Kind.UP_DOWN_COUNTER}:
        message.sum.is_monotonic = metric.kind is Kind.COUNTER
        message.sum.aggregation_temporality = _DELTA if metric.kind is Kind.COUNTER else _CUMULATIVE
        message.sum.data_points.append(point)
    else:
        raise ShapeError(f"{metric.name} is a {metric.kind}; one number cannot carry it")
    return message


def _without_empty_rows(counts: IntArray) -> tuple[IntArray, IntArray]:
    """Leave out layers that counted nothing: absence is zero, and an idle engine costs nothing."""
    rows = np.flatnonzero(counts.any(axis=1))
    return (counts if len(rows) == len(counts) else counts[rows]), rows


def _key_values(attributes: Mapping[str, AttributeValue]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_any_value(value)) for key, value in attributes.items()]


def _any_value(value: AttributeValue) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    return AnyValue(string_value=value)


def _attribute(key_value: KeyValue) -> bytes:
    body = key_value.SerializeToString()
    return _POINT_ATTRIBUTES + _varint(len(body)) + body


def _layer_attribute(length: int) -> bytes:
    """The layer's attribute, its value of ``length`` bytes last so that it can be written over."""
    largest = (1 << (7 * length)) - 1
    return _attribute(KeyValue(key=LAYER, value=AnyValue(int_value=largest)))


def _field(number: int, body: bytes) -> bytes:
    return _head(number, len(body)) + body


def _head(number: int, length: int) -> bytes:
    """Tag and length of a length-delimited field."""
    return _varint((number << 3) | 2) + _varint(length)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _fixed64(value: int) -> _Bytes:
    return np.array([value], dtype="<u8").view(np.uint8)
