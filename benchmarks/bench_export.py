"""Export of 92 × 896 expert counts: index-encoded histograms against one OTel SDK counter per expert.

Both sides turn the same counts into the bytes of an OTLP request, in one process, in turn; CPU time of the
process, the smallest of the repeats. The SDK's side is ``counter.add`` once per expert and export (an engine
would add once per step), its collection and its encoder, with the cardinality limit lifted (the default
would fold all but 2,000 series into one). Our side is the reporter's: copy the counters, subtract, pack.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from machine import print_result
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics import Counter, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader

from moescope.collector.expert_load import NumpyExpertCounter
from moescope.collector.expert_load_source import ExpertLoadSource
from moescope.exporters.otlp_wire import OtlpPacker
from moescope.schemas.attributes import Phase
from moescope.schemas.identity import EngineIdentity
from moescope.schemas.records import Window
from moescope.schemas.topology import MODEL_SHAPES

SHAPE = MODEL_SHAPES["kimi-k3"]
IS_QUICK = "--quick" in sys.argv
OUR_REPEATS = 20 if IS_QUICK else 200
SDK_REPEATS = 1 if IS_QUICK else 3


def cpu_seconds(work: Callable[[], object], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def make_sdk_export(counts: np.ndarray) -> Callable[[], bytes]:
    reader = InMemoryMetricReader(
        preferred_temporality={Counter: AggregationTemporality.DELTA},
        cardinality_limits={Counter: 10**6},
    )
    counter = MeterProvider([reader]).get_meter("bench").create_counter("moe.expert.tokens", "{token}")
    attributes = [
        [
            {"moe.layer": layer, "moe.expert": expert, "moe.phase": "decode"}
            for expert in range(SHAPE.num_experts)
        ]
        for layer in SHAPE.moe_layers
    ]
    values = counts.tolist()

    def export() -> bytes:
        for layer_values, layer_attributes in zip(values, attributes, strict=True):
            for value, point_attributes in zip(layer_values, layer_attributes, strict=True):
                counter.add(value, point_attributes)
        return encode_metrics(reader.get_metrics_data()).SerializeToString()

    return export


def make_our_export(counts: np.ndarray) -> Callable[[], list[bytes]]:
    identity = EngineIdentity("bench", SHAPE)
    source = ExpertLoadSource(identity, NumpyExpertCounter(SHAPE.num_moe_layers, SHAPE.num_experts))
    packer = OtlpPacker(identity.resource_attributes())
    tokens = int(counts[0].sum()) // SHAPE.top_k
    source.close_window(snapshot=True)  # a snapshot goes out with every sixth window

    def export() -> list[bytes]:
        source.add_counts(Phase.DECODE, tokens, counts)
        return packer.pack(Window(1, 2, source.close_window(snapshot=False)))

    return export


def total(requests: list[bytes]) -> int:
    return sum(
        point.count if metric.HasField("histogram") else point.as_int
        for request in requests
        for resource_metrics in ExportMetricsServiceRequest.FromString(request).resource_metrics
        for metric in resource_metrics.scope_metrics[0].metrics
        if metric.name == "moe.expert.tokens"
        for point in (metric.histogram if metric.HasField("histogram") else metric.sum).data_points
    )


def main() -> None:
    size = (SHAPE.num_moe_layers, SHAPE.num_experts)
    counts = np.random.default_rng(7).poisson(56, size).astype(np.int64)
    sdk, ours = make_sdk_export(counts), make_our_export(counts)
    sdk_bytes, our_bytes = sdk(), ours()
    if not total([sdk_bytes]) == total(our_bytes) == counts.sum():
        sys.exit("the two sides do not carry the same counts")
    our_seconds = cpu_seconds(ours, OUR_REPEATS)
    sdk_seconds = cpu_seconds(sdk, SDK_REPEATS)
    our_seconds = min(our_seconds, cpu_seconds(ours, OUR_REPEATS))
    size = sum(map(len, our_bytes))
    print(f"{counts.shape[0]} layers x {counts.shape[1]} experts, one phase, {counts.sum():,} assignments")
    print(f"one SDK counter per expert: {sdk_seconds * 1e3:9.2f} ms CPU   {len(sdk_bytes):>10,} bytes")
    print(f"index-encoded histograms:   {our_seconds * 1e3:9.2f} ms CPU   {size:>10,} bytes")
    print_result(
        "export",
        sdk_seconds / our_seconds,
        "times less CPU",
        at_least=400,
        sdk_cpu_ms=round(sdk_seconds * 1e3, 2),
        our_cpu_ms=round(our_seconds * 1e3, 3),
        bytes_ratio=round(len(sdk_bytes) / size, 2),
    )


if __name__ == "__main__":
    main()
