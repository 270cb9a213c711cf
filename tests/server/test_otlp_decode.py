"""Request bodies become blocks, whatever legal form they are written in."""

import json
import struct

import numpy as np
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from moescope.schemas.errors import MalformedRequestError
from moescope.server.otlp_decode import Encoding, PointKind, decode
from moescope.server.otlp_messages import FastRequest
from tests.server.otlp_requests import counter, gauge, histogram, index_point, request_of

COUNTS = [[13, 0, 23, 79], [1, 2, 3, 4]]


def expert_body() -> bytes:
    points = [index_point(row, layer=layer) for layer, row in enumerate(COUNTS)]
    return request_of({"service.name": "svc"}, histogram(*points)).SerializeToString()


def buckets_of(body: bytes, encoding=Encoding.PROTOBUF):
    (block,) = decode(body, encoding)
    return block.buckets


def test_buckets_are_read_in_order():
    buckets = buckets_of(expert_body())
    assert buckets.counts.tolist() == [13, 0, 23, 79, 1, 2, 3, 4]
    assert buckets.count_lengths.tolist() == [4, 4]
    assert buckets.bounds.tolist() == [0, 1, 2, 0, 1, 2]
    assert buckets.sums.tolist() == [115, 10]


def test_fast_message_holds_the_packed_array_as_bytes():
    request = FastRequest.FromString(expert_body())
    point = request.resource_metrics[0].scope_metrics[0].metrics[0].histogram.data_points[0]
    assert point.bucket_counts == np.array(COUNTS[0], dtype="<u8").tobytes()


def wrap(number: int, body: bytes) -> bytes:
    return bytes([(number << 3) | 2]) + varint(len(body)) + body


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def request_with_point_bytes(point: bytes) -> bytes:
    histogram_body = wrap(1, point) + b"\x10\x01"
    metric = wrap(1, b"odd") + wrap(9, histogram_body)
    return wrap(1, wrap(2, wrap(2, metric)))


def test_unpacked_buckets_are_read_all_the_same():
    unpacked = b"".join(b"\x31" + struct.pack("<Q", count) for count in (13, 23, 79))
    bounds = b"".join(b"\x39" + struct.pack("<d", bound) for bound in (0.5, 1.5))
    body = request_with_point_bytes(b"\x21" + struct.pack("<Q", 115) + unpacked + bounds)
    buckets = buckets_of(body)
    assert buckets.counts.tolist() == [13, 23, 79]
    assert buckets.bounds.tolist() == [0.5, 1.5]


def test_buckets_packed_in_two_pieces_are_read_all_the_same():
    pieces = wrap(6, struct.pack("<2Q", 13, 23)) + wrap(6, struct.pack("<Q", 79))
    bounds = wrap(7, struct.pack("<2d", 0.5, 1.5))
    body = request_with_point_bytes(b"\x21" + struct.pack("<Q", 115) + pieces + bounds)
    assert buckets_of(body).counts.tolist() == [13, 23, 79]


def test_packed_length_that_is_no_multiple_of_eight_is_malformed():
    body = request_with_point_bytes(b"\x21" + struct.pack("<Q", 13) + wrap(6, b"12345"))
    with pytest.raises(MalformedRequestError, match="no OTLP ExportMetricsServiceRequest in protobuf"):
        decode(body, Encoding.PROTOBUF)


def test_histogram_without_buckets_stays_without():
    point = index_point([23], bucket_counts=[], explicit_bounds=[])
    buckets = buckets_of(request_of({}, histogram(point)).SerializeToString())
    assert buckets.count_lengths.tolist() == [0]
    assert buckets.sums.tolist() == [0]


def test_json_gives_the_same_blocks_as_protobuf():
    request = request_of({"service.name": "svc"}, histogram(index_point(COUNTS[0])), counter(79), gauge(0.5))
    from_json = decode(json_format.MessageToJson(request).encode(), Encoding.JSON)
    from_protobuf = decode(request.SerializeToString(), Encoding.PROTOBUF)
    assert [block.kind for block in from_json] == [PointKind.HISTOGRAM, PointKind.SUM, PointKind.GAUGE]
    assert [block.origin.resource_texts for block in from_json] == [
        block.origin.resource_texts for block in from_protobuf
    ]
    assert from_json[0].buckets.counts.tolist() == from_protobuf[0].buckets.counts.tolist()
    assert from_json[1].points[0].as_int == 79


def test_json_has_hex_ids_integer_enums_and_unknown_fields():
    exemplar = {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "EEE19B7EC3C1B174", "asDouble": 1.5}
    point = {"asInt": "13", "timeUnixNano": "1", "exemplars": [exemplar], "laterAddition": {"a": 1}}
    metric = {"name": "c", "sum": {"aggregationTemporality": 2, "isMonotonic": True, "dataPoints": [point]}}
    body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
    (block,) = decode(json.dumps(body).encode(), Encoding.JSON)
    assert block.temporality == 2
    assert block.is_monotonic
    assert block.points[0].exemplars[0].trace_id.hex() == exemplar["traceId"]
    assert block.points[0].exemplars[0].span_id.hex() == exemplar["spanId"].lower()


@pytest.mark.parametrize(
    "body",
    [b"{", b"[1]", b"\xff", b'{"resourceMetrics": 7}', b"[" * 5000, b'{"traceId": "zz"}'],
)
def test_json_that_is_no_request_is_malformed(body):
    with pytest.raises(MalformedRequestError):
        decode(body, Encoding.JSON)


@pytest.mark.parametrize("body", [b"not OTLP", b"\x0a\xff", b"\x1f\x8b\x08\x00"])
def test_protobuf_that_is_no_request_is_malformed(body):
    with pytest.raises(MalformedRequestError, match="Content-Encoding"):
        decode(body, Encoding.PROTOBUF)


def test_empty_request_has_no_blocks():
    assert decode(ExportMetricsServiceRequest().SerializeToString(), Encoding.PROTOBUF) == []
