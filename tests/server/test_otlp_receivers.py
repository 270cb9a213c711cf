"""OTLP over gRPC and over HTTP: every legal form is taken, every failure is answered in OTLP's own words."""

import gzip
import json
import threading
import urllib.error
import urllib.request
import zlib
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import grpc
import lz4.frame
import numpy as np
import pytest
import zstandard
from google.protobuf import json_format
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from moescope.schemas.errors import StoreUnavailableError
from moescope.server.otlp_messages import EXPORT_METHOD
from tests.server.otlp_requests import (
    counter,
    expert_request,
    gauge,
    histogram,
    index_point,
    request_of,
    resource_of,
)

COUNTS = np.array([[13, 0, 23], [0, 79, 1]])
SUMS = [[1, 0, 13], [1, 2, 23], [2, 1, 79], [2, 2, 1]]
PROTOBUF = "application/x-protobuf"
JSON = "application/json"


def post(server, body: bytes, content_type=PROTOBUF, path="/v1/metrics", **headers):
    """Status, headers and body of an answer."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(
        server.url("otlp_http", path), data=body, headers={"content-type": content_type, **names}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def grpc_failure(server, body: bytes, **metadata: str) -> tuple[grpc.StatusCode, str, Status]:
    with pytest.raises(grpc.RpcError) as caught:
        server.export(body, **metadata)
    trailing = dict(caught.value.trailing_metadata())
    details = Status.FromString(trailing.get("grpc-status-details-bin", b""))
    return caught.value.code(), caught.value.details(), details


def retry_seconds(status: Status) -> float | None:
    for detail in status.details:
        info = RetryInfo()
        if detail.Unpack(info):
            return info.retry_delay.ToTimedelta().total_seconds()
    return None


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("identity", bytes),
        ("gzip", gzip.compress),
        ("zstd", zstandard.ZstdCompressor().compress),
        ("deflate", zlib.compress),
        ("lz4", lz4.frame.compress),
    ],
)
def test_http_takes_every_packing(server, encoding, pack):
    body = expert_request(f"http-{encoding}", COUNTS)
    status, headers, answer = post(server, pack(body), content_encoding=encoding)
    assert (status, headers["content-type"]) == (200, PROTOBUF)
    assert ExportMetricsServiceResponse.FromString(answer) == ExportMetricsServiceResponse()
    assert server.expert_sums(f"http-{encoding}") == SUMS


def test_http_takes_json_and_answers_in_json(server):
    request = ExportMetricsServiceRequest.FromString(expert_request("http-json", COUNTS))
    status, headers, answer = post(server, json_format.MessageToJson(request).encode(), JSON)
    assert (status, headers["content-type"], json.loads(answer)) == (200, JSON, {})
    assert server.expert_sums("http-json") == SUMS


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_grpc_takes_both_packings(server, compression):
    service = f"grpc-{compression.name}"
    with grpc.insecure_channel(f"127.0.0.1:{server.ports.otlp_grpc}", compression=compression) as channel:
        assert channel.unary_unary(EXPORT_METHOD)(expert_request(service, COUNTS), timeout=60) == b""
    assert server.expert_sums(service) == SUMS


def test_same_request_three_times_over_both_protocols_is_stored_once(server):
    body = expert_request("three-times", COUNTS)
    server.export(body)
    post(server, body)
    post(server, gzip.compress(body), content_encoding="gzip")
    assert server.expert_sums("three-times") == SUMS


def test_same_request_at_the_same_moment_is_stored_once(server):
    body = expert_request("same-moment", COUNTS)
    with ThreadPoolExecutor(8) as executor:
        answers = list(executor.map(lambda _: server.export(body), range(8)))
    assert answers == [b""] * 8
    assert server.expert_sums("same-moment") == SUMS


def bad_batch(service: str) -> bytes:
    good = index_point([13, 0, 23], layer=1)
    wrong = {**good, "count": 1}
    resource = resource_of(service, "one", experts=3)
    request = request_of(resource, histogram(good, wrong, wrong), gauge(float("nan")), counter(79))
    return request.SerializeToString()


def test_rest_of_a_batch_is_kept_and_the_answer_says_what_was_not(server):
    response = ExportMetricsServiceResponse.FromString(server.export(bad_batch("partial-grpc")))
    assert response.partial_success.rejected_data_points == 3
    assert (
        "2 point(s) rejected, count is not the sum of the buckets" in response.partial_success.error_message
    )
    assert "room.temperature of one: 1 point(s) rejected, a value is NaN" in (
        response.partial_success.error_message
    )
    assert server.expert_sums("partial-grpc") == [[1, 0, 13], [1, 2, 23]]


def test_http_json_answers_a_partial_success_in_json(server):
    request = ExportMetricsServiceRequest.FromString(bad_batch("partial-json"))
    status, _, answer = post(server, json_format.MessageToJson(request).encode(), JSON)
    assert status == 200
    assert json.loads(answer)["partialSuccess"]["rejectedDataPoints"] == "3"


def test_rejected_points_are_counted_by_reason(server):
    def count(reason: str) -> float:
        line = f'moescope_ingest_points_rejected_total{{reason="{reason}"}} '
        found = [row.removeprefix(line) for row in server.page().splitlines() if row.startswith(line)]
        return float(found[0]) if found else 0.0

    before = count("count_mismatch"), count("not_finite")
    server.export(bad_batch("counted"))
    assert (count("count_mismatch") - before[0], count("not_finite") - before[1]) == (2, 1)


def test_grpc_body_that_is_no_otlp_is_invalid_and_not_worth_repeating(server):
    code, text, status = grpc_failure(server, b"\xff\xff\xff")
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "no OTLP ExportMetricsServiceRequest" in text
    assert status.message == text
    assert retry_seconds(status) is None


@pytest.mark.parametrize(
    ("body", "headers", "status", "words"),
    [
        (b"\xff\xff\xff", {}, 400, "no OTLP ExportMetricsServiceRequest"),
        (b"plain", {"content_encoding": "gzip"}, 400, "the body is not gzip"),
        (gzip.compress(b"x" * 100)[:-9], {"content_encoding": "gzip"}, 400, "its end is missing"),
        (b"plain", {"content_encoding": "zstd"}, 400, "the body is not zstd"),
        (b"plain", {"content_encoding": "lz4"}, 400, "the body is not lz4"),
        (b"", {"content_encoding": "snappy"}, 400, "send one of identity, gzip, deflate, zstd, lz4"),
    ],
    ids=["no protobuf", "no gzip", "torn gzip", "no zstd", "no lz4", "unknown encoding"],
)
def test_http_body_that_is_no_otlp_is_answered_with_a_status_message(server, body, headers, status, words):
    code, response_headers, answer = post(server, body, **headers)
    assert (code, response_headers["content-type"]) == (status, PROTOBUF)
    assert words in Status.FromString(answer).message
    assert response_headers["retry-after"] is None


def test_json_failure_is_answered_in_json(server):
    code, headers, answer = post(server, b"{", JSON)
    assert (code, headers["content-type"]) == (400, JSON)
    assert "no OTLP metrics request in JSON" in json.loads(answer)["message"]


def test_content_type_that_is_no_otlp_is_named(server):
    code, _, answer = post(server, b"a=1", "application/x-www-form-urlencoded")
    assert code == 400
    assert "application/x-www-form-urlencoded' is not OTLP" in Status.FromString(answer).message


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/logs"])
def test_other_signals_are_told_where_they_stand(server, path):
    code, _, answer = post(server, b"", path=path)
    assert code == 404
    assert b"stores metrics only" in answer


def test_grpc_health_check_is_answered(server):
    with grpc.insecure_channel(f"127.0.0.1:{server.ports.otlp_grpc}") as channel:
        assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=10) == b"\x08\x01"


def test_unknown_grpc_method_is_unimplemented(server):
    with (
        grpc.insecure_channel(f"127.0.0.1:{server.ports.otlp_grpc}") as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")(b"", timeout=10)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", lambda data: gzip.compress(data, 9)),
        ("zstd", zstandard.ZstdCompressor().compress),
        ("deflate", lambda data: zlib.compress(data, 9)),
        ("lz4", lz4.frame.compress),
    ],
)
def test_body_that_unpacks_to_gigabytes_is_refused_before_the_memory_is_taken(server, encoding, pack):
    zeros = bytes(64 * 2**20)
    bomb = b"".join([pack(zeros)] * 16) if encoding != "deflate" else pack(zeros * 4)
    before = resident_bytes()
    code, _, answer = post(server, bomb, content_encoding=encoding)
    assert code == 413
    assert "max_request_bytes" in Status.FromString(answer).message
    assert resident_bytes() - before < 128 * 2**20


def test_grpc_bomb_is_refused(server):
    with (
        grpc.insecure_channel(
            f"127.0.0.1:{server.ports.otlp_grpc}", compression=grpc.Compression.Gzip
        ) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        channel.unary_unary(EXPORT_METHOD)(bytes(64 * 2**20), timeout=60)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_attributes_that_would_fill_the_memory_are_refused(server):
    metric = gauge(1)
    metric.gauge.data_points.extend([metric.gauge.data_points[0]] * 9_999)
    body = request_of({"service.name": "spread", "long": "x" * 100_000}, metric).SerializeToString()
    code, text, _ = grpc_failure(server, body)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "send fewer points per request or shorter attributes" in text


@pytest.fixture
def held_store(server, monkeypatch):
    """The store of the running server waits until the test lets it go on."""
    gate = threading.Event()
    monkeypatch.setattr("moescope.server.embedded_store.EmbeddedStore.commit", lambda *_: gate.wait(60))
    yield gate
    gate.set()


def test_full_queue_asks_to_come_again(server, held_store):
    # Both threads hold one batch, the queue is full, and one more is too many.
    most = server.settings.ingest_queue_requests + 2 * server.settings.ingest_batch_requests
    bodies = [expert_request("full", COUNTS, instance=str(number)) for number in range(most + 1)]
    with ThreadPoolExecutor(len(bodies)) as executor:
        sent = [executor.submit(post, server, body) for body in bodies]
        first, *_ = wait(sent, 60, FIRST_COMPLETED).done
        held_store.set()
    status, headers, answer = first.result()
    assert status == 429
    assert int(headers["retry-after"]) >= 1
    assert retry_seconds(Status.FromString(answer)) is not None
    assert {future.result()[0] for future in sent} == {200, 429}


def test_full_queue_is_resource_exhausted_with_retry_info(server, monkeypatch):
    from moescope.schemas.errors import QueueFullError

    def submit(*_):
        raise QueueFullError("64 requests wait", retry_after_seconds=1.5)

    monkeypatch.setattr("moescope.server.writer.Writer.submit", submit)
    code, _, status = grpc_failure(server, expert_request("exhausted", COUNTS))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert retry_seconds(status) == 1.5


def test_store_that_fails_is_unavailable_and_the_repetition_is_stored(server, monkeypatch):
    body = expert_request("away", COUNTS)

    def commit(*_):
        raise StoreUnavailableError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("moescope.server.embedded_store.EmbeddedStore.commit", commit)
        code, text, status = grpc_failure(server, body)
        http_status, headers, _ = post(server, body)
    assert (code, http_status) == (grpc.StatusCode.UNAVAILABLE, 503)
    assert "no space left" in text
    assert retry_seconds(status) > 0
    assert int(headers["retry-after"]) > 0
    server.export(body)
    assert server.expert_sums("away") == SUMS


def test_empty_request_is_stored_as_nothing(server):
    assert server.export(b"") == b""
