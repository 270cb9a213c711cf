"""The stock OpenTelemetry SDK: its metrics land in the stock tables, with the stock meanings."""

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource


def exporter_of(server, protocol: str):
    if protocol == "grpc":
        return GrpcExporter(endpoint=f"http://127.0.0.1:{server.ports.otlp_grpc}", insecure=True)
    return HttpExporter(endpoint=server.url("otlp_http", "/v1/metrics"))


@pytest.fixture(scope="module", params=["grpc", "http"])
def service(server, request):
    """Metrics of one process, exported once at its end; the service is named after the protocol."""
    reader = PeriodicExportingMetricReader(exporter_of(server, request.param), 3_600_000)
    view = View(instrument_name="fine", aggregation=ExponentialBucketHistogramAggregation())
    name = f"sdk-{request.param}"
    provider = MeterProvider([reader], resource=Resource.create({"service.name": name}), views=[view])
    meter = provider.get_meter("tests.sdk", "1.2.3")
    meter.create_counter("requests", unit="{request}", description="Answered.").add(13, {"code": 200})
    meter.create_up_down_counter("level").add(-4)
    meter.create_gauge("temperature", unit="Cel").set(23.5, {"room": "a", "warm": True})
    plain = meter.create_histogram("wait", unit="s", explicit_bucket_boundaries_advisory=[0.5, 1.0])
    fine = meter.create_histogram("fine", unit="s")
    for seconds in (0.25, 0.75, 0.75, 7.0):
        plain.record(seconds)
        fine.record(seconds)
    provider.shutdown()
    return name


def rows(server, table: str, columns: str, service: str) -> list[list]:
    return server.sql(
        f"SELECT {columns} FROM otel_metrics_{table} "
        "WHERE ServiceName = {service:String} ORDER BY MetricName",
        param_service=service,
    )


def test_counters_land_as_sums(server, service):
    columns = (
        "MetricName, Value, IsMonotonic, AggregationTemporality, MetricUnit, MetricDescription, Attributes"
    )
    assert rows(server, "sum", columns, service) == [
        ["level", -4, False, 2, "", "", {}],
        ["requests", 13, True, 2, "{request}", "Answered.", {"code": "200"}],
    ]


def test_gauge_lands_with_its_attributes_as_text(server, service):
    columns = "MetricName, Value, Attributes, ScopeName, ScopeVersion"
    assert rows(server, "gauge", columns, service) == [
        ["temperature", 23.5, {"room": "a", "warm": "true"}, "tests.sdk", "1.2.3"]
    ]


def test_histogram_lands_with_its_buckets(server, service):
    columns = "MetricName, Count, Sum, Min, Max, BucketCounts, ExplicitBounds"
    assert rows(server, "histogram", columns, service) == [["wait", 4, 8.75, 0.25, 7, [1, 2, 1], [0.5, 1]]]


def test_exponential_histogram_lands_with_its_scale(server, service):
    ((name, count, total, counted, scale),) = rows(
        server,
        "exponential_histogram",
        "MetricName, Count, Sum, arraySum(PositiveBucketCounts) + ZeroCount, Scale",
        service,
    )
    assert (name, count, total, counted) == ("fine", 4, 8.75, 4)
    assert scale > 0


def test_resource_and_times_are_kept(server, service):
    ((sdk, is_recent),) = rows(
        server,
        "gauge",
        "ResourceAttributes['telemetry.sdk.name'], TimeUnix > now64(9, 'UTC') - INTERVAL 10 MINUTE",
        service,
    )
    assert (sdk, is_recent) == ("opentelemetry", 1)
