import logging

import grpc
import numpy as np
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from moescope.exporters.otlp import OtlpExporter
from moescope.exporters.otlp_config import load_otlp_config
from moescope.schemas import metrics
from moescope.schemas.identity import EngineIdentity
from moescope.schemas.records import IndexedCounts, Window
from moescope.schemas.topology import every_layer_from

SHAPE = every_layer_from("tiny", 0, 2, num_experts=3, top_k=2)
UNAVAILABLE = {"grpc": grpc.StatusCode.UNAVAILABLE, "http/protobuf": 503}
INVALID = {"grpc": grpc.StatusCode.INVALID_ARGUMENT, "http/protobuf": 400}
DENIED = {"grpc": grpc.StatusCode.UNAUTHENTICATED, "http/protobuf": 401}


def make_exporter(endpoint, **environ: str) -> OtlpExporter:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint.url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": endpoint.protocol,
        **environ,
    }
    return OtlpExporter(EngineIdentity("svc", SHAPE), load_otlp_config(environ), version="1.2.3")


def window(*counts: int, start: int = 10) -> Window:
    record = IndexedCounts(metrics.EXPERT_TOKENS, SHAPE.layer_index, np.array([counts, counts]))
    return Window(start, start + 10, (record,))


def test_window_arrives_as_it_was_counted(endpoint):
    exporter = make_exporter(endpoint)

    assert exporter.export(window(13, 23, 79)).delivered

    [body] = endpoint.bodies
    [resource_metrics] = ExportMetricsServiceRequest.FromString(body).resource_metrics
    [scope_metrics] = resource_metrics.scope_metrics
    assert (scope_metrics.scope.name, scope_metrics.scope.version) == ("moescope", "1.2.3")
    assert list(scope_metrics.metrics[0].histogram.data_points[0].bucket_counts) == [13, 23, 79]
    assert exporter.pending_bytes == 0
    exporter.close()


def test_window_that_was_not_taken_is_repeated_byte_for_byte(endpoint):
    exporter = make_exporter(endpoint)
    endpoint.script = [UNAVAILABLE[endpoint.protocol]] * 2

    first = exporter.export(window(13, 23, 79))
    second = exporter.retry()

    assert not first.delivered
    assert not second.delivered
    assert exporter.pending_bytes == len(endpoint.bodies[0])
    assert exporter.retry().delivered
    assert len(set(endpoint.bodies)) == 1
    assert len(endpoint.bodies) == 3
    exporter.close()


def test_endpoint_that_is_not_there_keeps_the_window(endpoint):
    endpoint.stop()
    exporter = make_exporter(endpoint, OTEL_EXPORTER_OTLP_TIMEOUT="2")

    attempt = exporter.export(window(1, 2, 3))

    assert not attempt.delivered
    assert attempt.reason in {"unavailable", "deadline_exceeded", "unreachable"}
    assert exporter.pending_bytes > 0
    exporter.close()
    endpoint.stop = lambda: None


def test_request_that_no_endpoint_will_ever_take_is_dropped_loudly(endpoint, caplog):
    exporter = make_exporter(endpoint)
    endpoint.script = [INVALID[endpoint.protocol]]

    with caplog.at_level(logging.ERROR, logger="moescope"):
        attempt = exporter.export(window(1, 2, 3))

    assert attempt.delivered
    assert attempt.reason in {"invalid_argument", "http_400"}
    assert exporter.pending_bytes == 0
    assert "refuses" in caplog.text
    exporter.close()


def test_wrong_token_keeps_the_window_since_a_person_can_mend_it(endpoint):
    exporter = make_exporter(endpoint)
    endpoint.script = [DENIED[endpoint.protocol]]

    assert exporter.export(window(1, 2, 3)).reason in {"unauthenticated", "http_401"}
    assert exporter.retry().delivered
    exporter.close()


def test_rejected_points_of_a_taken_request_are_reported(endpoint, caplog):
    exporter = make_exporter(endpoint)
    endpoint.response = ExportMetricsServiceResponse(
        partial_success=ExportMetricsPartialSuccess(rejected_data_points=7, error_message="too old")
    )

    with caplog.at_level(logging.ERROR, logger="moescope"):
        attempt = exporter.export(window(1, 2, 3))

    assert attempt.delivered
    assert attempt.reason == "rejected_points"
    assert "rejected 7 points: too old" in caplog.text
    exporter.close()


def test_headers_are_sent(endpoint):
    exporter = make_exporter(endpoint, OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20secret")

    exporter.export(window(1, 2, 3))

    headers = {name.lower(): value for name, value in endpoint.headers[0].items()}
    assert headers["authorization"] == "Bearer secret"
    exporter.close()


def test_grpc_pause_that_the_receiver_asks_for_is_passed_on(grpc_endpoint):
    grpc_endpoint.protocol = "grpc"
    exporter = make_exporter(grpc_endpoint)
    grpc_endpoint.script = [(grpc.StatusCode.RESOURCE_EXHAUSTED, 0.5)]

    attempt = exporter.export(window(1, 2, 3))

    assert (attempt.delivered, attempt.retry_after_seconds) == (False, 0.5)
    exporter.close()


def test_http_pause_that_the_receiver_asks_for_is_passed_on(http_endpoint):
    http_endpoint.protocol = "http/protobuf"
    exporter = make_exporter(http_endpoint)
    http_endpoint.script = [(429, {"Retry-After": "3"})]

    attempt = exporter.export(window(1, 2, 3))

    assert (attempt.reason, attempt.retry_after_seconds) == ("http_429", 3.0)
    exporter.close()


def test_compressed_body_is_frozen_compressed(http_endpoint):
    import gzip

    http_endpoint.protocol = "http/protobuf"
    exporter = make_exporter(http_endpoint, OTEL_EXPORTER_OTLP_COMPRESSION="gzip")
    http_endpoint.script = [503]

    exporter.export(window(13, 23, 79))
    exporter.retry()

    assert http_endpoint.bodies[0] == http_endpoint.bodies[1]
    assert http_endpoint.headers[0]["Content-Encoding"] == "gzip"
    request = ExportMetricsServiceRequest.FromString(gzip.decompress(http_endpoint.bodies[0]))
    assert len(request.resource_metrics) == 1
    exporter.close()


def test_standard_resource_attributes_of_the_environment_are_added(endpoint, monkeypatch):
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=pod-7,moe.ep.rank=99")
    exporter = make_exporter(endpoint)

    exporter.export(window(1, 2, 3))

    [resource_metrics] = ExportMetricsServiceRequest.FromString(endpoint.bodies[0]).resource_metrics
    found = {a.key: a.value for a in resource_metrics.resource.attributes}
    assert found["k8s.pod.name"].string_value == "pod-7"
    assert found["moe.ep.rank"].int_value == 0, "what the engine knows is not overridden"
    exporter.close()
