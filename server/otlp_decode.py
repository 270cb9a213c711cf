"""OTLP bodies become blocks: the points of one metric with their resource, scope and numbers.

Buckets stay numpy arrays over the request's own bytes. Nothing is judged here beyond "is this OTLP";
:mod:`moescope.server.validate` looks at every point.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from google.protobuf import json_format, unknown_fields
from google.protobuf.message import DecodeError

from moescope.schemas.errors import MalformedRequestError
from moescope.server.attribute_text import attribute_texts
from moescope.server.buckets import ELEMENT_BYTES, Buckets, pack_buckets
from moescope.server.otlp_messages import FastRequest, OfficialRequest


class Encoding(StrEnum):
    """How the body is written; the answer is written the same way."""

    PROTOBUF = "application/x-protobuf"
    JSON = "application/json"


class PointKind(StrEnum):
    """The five kinds of OTLP point; the value is the name of the field in ``Metric``."""

    GAUGE = "gauge"
    SUM = "sum"
    HISTOGRAM = "histogram"
    EXPONENTIAL_HISTOGRAM = "exponential_histogram"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Origin:
    """The resource and scope that several metrics share.

    ``resource`` holds the official or the fast message; texts are what the landing tables take.
    """

    resource: Any
    resource_texts: dict[str, str]
    resource_schema_url: str
    scope: Any
    scope_texts: dict[str, str]
    scope_schema_url: str


@dataclass(frozen=True, slots=True)
class Block:
    """The points of one metric: one row of a landing table each.

    ``points`` are protobuf messages; ``buckets`` is there for histograms only.
    """

    origin: Origin
    kind: PointKind
    name: str
    description: str
    unit: str
    points: Sequence[Any]
    temporality: int = 0
    is_monotonic: bool = False
    buckets: Buckets | None = field(default=None, repr=False)


def decode(body: bytes, encoding: Encoding) -> list[Block]:
    """Read a request.

    Raises:
        MalformedRequestError: the body is no ``ExportMetricsServiceRequest`` in that encoding.
    """
    if encoding is Encoding.JSON:
        return list(_blocks(_parse_json(body), packed=False))
    blocks = list(_blocks(_parse(FastRequest, body), packed=True))
    if all(_reads_consistently(block) for block in blocks):
        return blocks
    return list(_blocks(_parse(OfficialRequest, body), packed=False))


def _parse(message_class: Any, body: bytes) -> Any:
    try:
        return message_class.FromString(body)
    except DecodeError as error:
        raise MalformedRequestError(
            f"the body is no OTLP ExportMetricsServiceRequest in protobuf: {error}; "
            "check that the client sends metrics, and that Content-Encoding names its compression"
        ) from None


def _parse_json(body: bytes) -> Any:
    try:
        document = json.loads(body)
        _hex_to_base64(document)
        return json_format.ParseDict(document, OfficialRequest(), ignore_unknown_fields=True)
    except (ValueError, RecursionError, json_format.ParseError) as error:
        raise MalformedRequestError(f"the body is no OTLP metrics request in JSON: {error}") from None


def _hex_to_base64(node: Any) -> None:
    """OTLP writes trace and span ids as hex, where protobuf's own JSON has base64."""
    if isinstance(node, list):
        for item in node:
            _hex_to_base64(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in {"traceId", "spanId", "trace_id", "span_id"} and isinstance(value, str):
                node[key] = base64.b64encode(_from_hex(key, value)).decode()
            else:
                _hex_to_base64(value)


def _from_hex(key: str, text: str) -> bytes:
    try:
        return binascii.unhexlify(text)
    except binascii.Error:
        raise MalformedRequestError(f"{key} {text!r} is not hexadecimal") from None


def _blocks(request: Any, *, packed: bool) -> Iterator[Block]:
    for resource_metrics in request.resource_metrics:
        resource = resource_metrics.resource
        resource_texts = attribute_texts(resource.attributes)
        for scope_metrics in resource_metrics.scope_metrics:
            scope = scope_metrics.scope
            origin = Origin(
                resource,
                resource_texts,
                resource_metrics.schema_url,
                scope,
                attribute_texts(scope.attributes),
                scope_metrics.schema_url,
            )
            for metric in scope_metrics.metrics:
                kind = metric.WhichOneof("data")
                if kind is not None:
                    yield _block(origin, metric, PointKind(kind), packed=packed)


def _block(origin: Origin, metric: Any, kind: PointKind, *, packed: bool) -> Block:
    data = getattr(metric, kind.value)
    points = list(data.data_points)
    buckets = None
    if kind is PointKind.HISTOGRAM:
        buckets = _packed_buckets(points) if packed else _official_buckets(points)
    return Block(
        origin,
        kind,
        metric.name,
        metric.description,
        metric.unit,
        points,
        temporality=getattr(data, "aggregation_temporality", 0),
        is_monotonic=getattr(data, "is_monotonic", False),
        buckets=buckets,
    )


def _packed_buckets(points: Sequence[Any]) -> Buckets:
    counts = [point.bucket_counts for point in points]
    bounds = [point.explicit_bounds for point in points]
    return pack_buckets(counts, bounds)


def _official_buckets(points: Sequence[Any]) -> Buckets:
    counts = [np.array(point.bucket_counts, dtype="<u8").tobytes() for point in points]
    bounds = [np.array(point.explicit_bounds, dtype="<f8").tobytes() for point in points]
    return pack_buckets(counts, bounds)


def _reads_consistently(block: Block) -> bool:
    """Whether the fast reading of a block can be what its sender meant."""
    buckets = block.buckets
    if buckets is None:
        return True
    without = (buckets.count_lengths == 0) & (buckets.bound_lengths == 0)
    fits = (buckets.count_lengths == buckets.bound_lengths + 1) | without
    counts = np.array([point.count for point in block.points], dtype=np.uint64)
    if any(
        len(point.bucket_counts) % ELEMENT_BYTES or len(point.explicit_bounds) % ELEMENT_BYTES
        for point in block.points
    ):
        return False
    if not fits.all() or not ((buckets.sums == counts) | without).all():
        return False
    return not any(
        len(unknown_fields.UnknownFieldSet(point))
        for point, is_without in zip(block.points, without, strict=True)
        if is_without
    )
