"""Points become rows with the stock exporter's names and meanings."""

import time

import numpy as np
import pyarrow as pa
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from moescope.schemas.errors import RequestTooLargeError
from moescope.schemas.migrate import MIGRATIONS_FOLDER
from moescope.server.landed_request import LandedRequest, combine, digest_of, to_wire
from moescope.server.landing import TABLES, land
from moescope.server.otlp_decode import Encoding, PointKind, decode
from tests.server.otlp_requests import counter, gauge, histogram, index_point, request_of, resource_of

LIMIT = 2**20


def tables_of(*metrics: Metric, resource: dict | None = None) -> dict[str, pa.Table]:
    request = request_of(resource_of("svc", "one") if resource is None else resource, *metrics)
    return land(decode(request.SerializeToString(), Encoding.PROTOBUF), max_request_bytes=LIMIT)


def rows_of(table: pa.Table) -> list[dict]:
    return table.to_pylist(maps_as_pydicts="strict")


def metric_of(kind: PointKind) -> Metric:
    if kind is PointKind.GAUGE:
        return gauge(0.5)
    if kind is PointKind.SUM:
        return counter(13)
    if kind is PointKind.HISTOGRAM:
        return histogram(index_point([13, 23]))
    metric = Metric(name="m")
    getattr(metric, kind.value).data_points.add(time_unix_nano=1)
    return metric


@pytest.mark.parametrize("kind", list(PointKind))
def test_columns_are_those_of_the_migration(kind):
    (migration,) = MIGRATIONS_FOLDER.glob(f"*_{TABLES[kind]}_table.sql")
    text = migration.read_text(encoding="utf-8")
    body = text[text.index("(\n") : text.index("INDEX")]
    wanted = set()
    nested = ""
    for line in body.splitlines()[1:]:
        name, _, rest = line.strip().partition(" ")
        if rest.startswith("Nested"):
            nested = name + "."
        elif name.startswith(")"):
            nested = ""
        elif name:
            wanted.add(nested + name)
    assert set(tables_of(metric_of(kind))[TABLES[kind]].schema.names) == wanted


def test_histogram_row_is_the_point():
    end = time.time_ns()
    point = index_point([13, 0, 23, 79], layer=3, phase="prefill", end_ns=end)
    (row,) = rows_of(tables_of(histogram(point))["otel_metrics_histogram"])
    assert row["Attributes"] == {"moe.layer": "3", "moe.phase": "prefill", "moe.encoding": "index"}
    assert row["ResourceAttributes"]["moe.model.experts"] == "8"
    assert row["ServiceName"] == "svc"
    assert row["MetricName"] == "moe.expert.tokens"
    assert row["MetricUnit"] == "{token}"
    assert row["BucketCounts"] == [13, 0, 23, 79]
    assert row["ExplicitBounds"] == [0, 1, 2]
    assert (row["Count"], row["Sum"], row["Min"], row["Max"]) == (115, 0, 0, 0)
    assert row["AggregationTemporality"] == 1
    assert row["TimeUnix"].value == end
    assert row["Exemplars.TraceId"] == []


def test_integers_and_doubles_are_doubles():
    rows = rows_of(tables_of(counter(13), counter(0.25))["otel_metrics_sum"])
    assert [row["Value"] for row in rows] == [13.0, 0.25]
    assert [row["IsMonotonic"] for row in rows] == [True, True]


def test_exemplars_keep_their_trace():
    metric = counter(13)
    exemplar = metric.sum.data_points[0].exemplars.add(
        as_int=79, time_unix_nano=2**64 - 1, trace_id=b"\x01" * 16, span_id=b"\x02" * 8
    )
    exemplar.filtered_attributes.add(key="k").value.string_value = "v"
    rows = rows_of(tables_of(counter(23), metric)["otel_metrics_sum"])
    assert [row["Exemplars.Value"] for row in rows] == [[], [79.0]]
    assert rows[1]["Exemplars.TraceId"] == ["01" * 16]
    assert rows[1]["Exemplars.SpanId"] == ["02" * 8]
    assert rows[1]["Exemplars.FilteredAttributes"] == [{"k": "v"}]


def test_resource_repeated_for_every_point_cannot_outgrow_the_limit():
    metric = gauge(1)
    metric.gauge.data_points.extend([metric.gauge.data_points[0]] * 999)
    with pytest.raises(RequestTooLargeError, match="repeated for every point"):
        tables_of(metric, resource={"service.name": "svc", "long": "x" * 10_000})


@pytest.mark.parametrize(
    ("counts", "bits"), [([13, 23], 16), ([13, 2**16], 32), ([13, 2**32], 64), ([0, 2**53 - 1], 64)]
)
def test_counts_travel_in_the_narrowest_type_that_holds_them(counts, bits):
    column = tables_of(histogram(index_point(counts)))["otel_metrics_histogram"]["BucketCounts"]
    assert column.type.value_type == pa.from_numpy_dtype(np.dtype(f"u{bits // 8}"))
    assert column.to_pylist() == [counts]


@pytest.mark.parametrize(
    ("bounds", "bits"), [([0, 1], 16), ([0, 65536], 64), ([0, 0.5], 64), ([-1, 1], 64), ([-0.0, 1], 16)]
)
def test_bounds_are_narrowed_only_where_nothing_is_lost(bounds, bits):
    point = index_point([13, 23, 79], explicit_bounds=bounds)
    column = tables_of(histogram(point))["otel_metrics_histogram"]["ExplicitBounds"]
    assert column.type.value_type.bit_width == bits
    assert column.to_pylist() == [bounds]


def landed(*points: dict) -> LandedRequest:
    body = request_of(resource_of("svc", "one"), histogram(*points)).SerializeToString()
    return LandedRequest(
        digest_of(body), land(decode(body, Encoding.PROTOBUF), max_request_bytes=LIMIT), len(body)
    )


def test_requests_of_different_widths_go_together():
    small = landed(index_point([13, 23]))
    large = landed(index_point([2**40, 79], explicit_bounds=[0.25]))
    table = combine([small, large, small])["otel_metrics_histogram"]
    assert table["BucketCounts"].to_pylist() == [[13, 23], [2**40, 79], [13, 23]]
    assert table["ExplicitBounds"].to_pylist() == [[0], [0.25], [0]]


def test_wire_form_is_one_record_batch():
    table = combine([landed(index_point([13])), landed(index_point([23]))])["otel_metrics_histogram"]
    batches = list(pa.ipc.open_stream(to_wire(table)))
    assert [batch.num_rows for batch in batches] == [2]


def test_digest_depends_on_every_byte():
    assert digest_of(b"a" * 1000) != digest_of(b"a" * 999 + b"b")
    assert len(digest_of(b"")) == 16
