"""OTLP requests made with the official classes, known to the last count."""

import time

import numpy as np
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from moescope.schemas import attributes as a
from moescope.schemas.metrics import EXPERT_TOKENS, TOKENS

DELTA = 1
CUMULATIVE = 2
WINDOW_NS = 10 * 10**9


def any_value(value) -> AnyValue:
    """The AnyValue of a Python value."""
    scalars = {bool: "bool_value", int: "int_value", float: "double_value", bytes: "bytes_value"}
    if type(value) in scalars:
        return AnyValue(**{scalars[type(value)]: value})
    if isinstance(value, list):
        made = AnyValue()
        made.array_value.SetInParent()
        made.array_value.values.extend(map(any_value, value))
        return made
    if isinstance(value, dict):
        made = AnyValue()
        made.kvlist_value.SetInParent()
        made.kvlist_value.values.extend(key_values(value))
        return made
    return AnyValue(string_value=value)


def key_values(attributes: dict) -> list[KeyValue]:
    return [KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


def resource_of(service: str, instance: str, *, experts: int = 8, **more) -> dict:
    return {
        a.SERVICE_NAME: service,
        a.SERVICE_INSTANCE_ID: instance,
        a.EP_GROUP: "0",
        a.EP_RANK: 0,
        a.EP_SIZE: 1,
        a.MODEL_EXPERTS: experts,
        a.MODEL_LAYERS: 5,
        a.MODEL_MOE_LAYERS: 4,
        a.MODEL_TOP_K: 2,
        **more,
    }


def request_of(resource: dict, *metrics: Metric) -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    resource_metrics = request.resource_metrics.add()
    resource_metrics.resource.attributes.extend(key_values(resource))
    scope_metrics = resource_metrics.scope_metrics.add()
    scope_metrics.scope.name = "tests"
    scope_metrics.metrics.extend(metrics)
    return request


def index_point(counts, *, layer=1, phase="decode", end_ns=None, **more) -> dict:
    """Fields of an index-encoded HistogramDataPoint; ``more`` overrides."""
    end_ns = time.time_ns() if end_ns is None else end_ns
    return {
        "attributes": key_values({a.LAYER: layer, a.PHASE: phase, a.ENCODING: a.ENCODING_INDEX}),
        "start_time_unix_nano": end_ns - WINDOW_NS,
        "time_unix_nano": end_ns,
        "count": int(np.sum(counts)),
        "bucket_counts": [int(count) for count in counts],
        "explicit_bounds": [float(bound) for bound in range(len(counts) - 1)],
        **more,
    }


def histogram(*points: dict, name=EXPERT_TOKENS.name, unit="{token}", temporality=DELTA) -> Metric:
    metric = Metric(name=name, unit=unit)
    metric.histogram.aggregation_temporality = temporality
    for point in points:
        metric.histogram.data_points.add(**point)
    return metric


def counter(
    value, *, name=TOKENS.name, temporality=DELTA, is_monotonic=True, unit="{token}", **more
) -> Metric:
    end_ns = time.time_ns()
    metric = Metric(name=name, unit=unit)
    metric.sum.aggregation_temporality = temporality
    metric.sum.is_monotonic = is_monotonic
    number = {} if value is None else {"as_int" if isinstance(value, int) else "as_double": value}
    fields = {"start_time_unix_nano": end_ns - WINDOW_NS, "time_unix_nano": end_ns, **number, **more}
    if name == TOKENS.name:
        fields.setdefault("attributes", key_values({a.PHASE: "decode", a.EXCLUDED: "none"}))
    metric.sum.data_points.add(**fields)
    return metric


def gauge(value, *, name="room.temperature", unit="Cel", **more) -> Metric:
    metric = Metric(name=name, unit=unit)
    number = {} if value is None else {"as_int" if isinstance(value, int) else "as_double": value}
    metric.gauge.data_points.add(**{"time_unix_nano": time.time_ns(), **number, **more})
    return metric


def expert_request(service: str, counts_per_layer_expert, *, instance="one", end_ns=None) -> bytes:
    """One window of one rank: a point per layer, layers from 1 on."""
    counts = np.asarray(counts_per_layer_expert)
    end_ns = time.time_ns() if end_ns is None else end_ns
    points = [index_point(row, layer=layer + 1, end_ns=end_ns) for layer, row in enumerate(counts)]
    resource = resource_of(service, instance, experts=counts.shape[1])
    return request_of(resource, histogram(*points)).SerializeToString()
