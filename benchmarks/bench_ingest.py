"""OTLP to queryable: expert counts as index-encoded histograms against one row per expert.

Both sides send the same K3 counts (92 layers × 896 experts, two phases, 8 ranks) over OTLP/gRPC to one
`moescope serve` process, in turn, and stop the clock when every request is acknowledged: on disk, in the
landing tables, and, for the histograms, in expert_load and its three roll-ups too. The rows go the way that
an OpenTelemetry counter per expert takes in the stock layout: one row each of otel_metrics_sum. At the end
SQL must find the same sums on both sides.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from machine import print_result
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from moescope.exporters.otlp_config import load_otlp_config
from moescope.exporters.otlp_transport import GrpcTransport, Verdict
from moescope.exporters.otlp_wire import OtlpPacker
from moescope.schemas import metrics, migrate
from moescope.schemas.attributes import PHASE, Phase
from moescope.schemas.identity import EngineIdentity
from moescope.schemas.records import IndexedCounts, Window
from moescope.schemas.settings import load_settings
from moescope.schemas.topology import MODEL_SHAPES, RankGrid

SHAPE = MODEL_SHAPES["kimi-k3"]
RANKS = 8
IS_QUICK = "--quick" in sys.argv
INDEXED_WINDOWS = 3 if IS_QUICK else 40
ROW_WINDOWS = 1
ROW_RANKS = 1 if IS_QUICK else 2
ROUNDS = 1 if IS_QUICK else 2
SECOND = 10**9


def free_ports(*names: str) -> dict[str, int]:
    sockets = [socket.socket() for _ in names]
    for sock in sockets:
        sock.bind(("127.0.0.1", 0))
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return dict(zip(names, ports, strict=True))


PORTS = free_ports("otlp-grpc", "otlp-http", "sql", "metrics")


def counts_of(rank: int, window: int) -> dict[Phase, np.ndarray]:
    rng = np.random.default_rng([7, rank, window])
    size = (SHAPE.num_moe_layers, SHAPE.num_experts)
    return {
        phase: rng.poisson(178 if phase is Phase.PREFILL else 56, size).astype(np.int64) for phase in Phase
    }


def identity_of(rank: int, service: str) -> EngineIdentity:
    return EngineIdentity(
        service, SHAPE, RankGrid("0", rank, RANKS), engine="benchmark", instance=f"{service}-{rank}"
    )


def indexed_requests(service: str, rank: int, windows: int, start_ns: int) -> Iterator[bytes]:
    packer = OtlpPacker(identity_of(rank, service).resource_attributes())
    for window in range(windows):
        records = tuple(
            IndexedCounts(metrics.EXPERT_TOKENS, SHAPE.layer_index, counts, {PHASE: phase.value})
            for phase, counts in counts_of(rank, window).items()
        )
        begin = start_ns + window * 10 * SECOND
        yield from packer.pack(Window(begin, begin + 10 * SECOND, records))


def row_requests(service: str, rank: int, windows: int, start_ns: int) -> Iterator[bytes]:
    resource = [
        KeyValue(key=key, value=AnyValue(string_value=str(value)))
        for key, value in identity_of(rank, service).resource_attributes().items()
    ]
    for window in range(windows):
        begin = start_ns + window * 10 * SECOND
        for phase, counts in counts_of(rank, window).items():
            request = ExportMetricsServiceRequest()
            resource_metrics = request.resource_metrics.add()
            resource_metrics.resource.attributes.extend(resource)
            metric = resource_metrics.scope_metrics.add().metrics.add(
                name="bench.expert.tokens", unit="{token}"
            )
            metric.sum.aggregation_temporality = pb.AGGREGATION_TEMPORALITY_DELTA
            metric.sum.is_monotonic = True
            for layer, row in zip(SHAPE.moe_layers, counts.tolist(), strict=True):
                for expert, count in enumerate(row):
                    point = metric.sum.data_points.add(
                        start_time_unix_nano=begin, time_unix_nano=begin + 10 * SECOND, as_int=count
                    )
                    for key, value in (
                        ("moe.layer", str(layer)),
                        ("moe.expert", str(expert)),
                        (PHASE, phase.value),
                    ):
                        point.attributes.add(key=key).value.string_value = value
            yield request.SerializeToString()


def send_all(requests: list[list[bytes]]) -> float:
    """Send each rank's requests in order, the ranks at once; seconds until all are acknowledged."""
    config = load_otlp_config(
        {"OTEL_EXPORTER_OTLP_TIMEOUT": "120"}, endpoint=f"http://127.0.0.1:{PORTS['otlp-grpc']}"
    )

    def send(rank_requests: list[bytes]) -> None:
        transport = GrpcTransport(config)
        for body in rank_requests:
            while (answer := transport.send(body)).verdict is Verdict.AGAIN:
                time.sleep(answer.retry_after_seconds or 0.05)
            if answer.verdict is Verdict.NEVER or answer.rejected_points:
                sys.exit(f"the server refused: {answer}")
        transport.close()

    started = time.perf_counter()
    with ThreadPoolExecutor(len(requests)) as pool:
        list(pool.map(send, requests))
    return time.perf_counter() - started


@contextmanager
def running_server() -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="moescope-bench-") as folder:
        options = [f"--{name}-port={port}" for name, port in PORTS.items()]
        process = subprocess.Popen(
            [sys.executable, "-m", "moescope", "serve", "--data-dir", str(Path(folder) / "data"), *options],
            stderr=subprocess.DEVNULL,
        )
        try:
            for _ in range(300):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{PORTS['metrics']}/readyz", timeout=5).close()
                    break
                except OSError:
                    if process.poll() is not None:
                        sys.exit("the server ended before it was ready")
                    time.sleep(0.2)
            yield
        finally:
            process.terminate()
            process.wait(60)


def sql(query: str) -> list[str]:
    url = f"http://127.0.0.1:{PORTS['sql']}/?default_format=JSONCompactStrings"
    with urllib.request.urlopen(url, data=query.encode(), timeout=120) as answer:
        return [row[0] for row in json.load(answer)["data"]]


def insert_rows_without_decoding() -> float:
    """Insert one rank's window as rows of otel_metrics_sum, already columns; counts per second."""
    import clickhouse_connect

    with tempfile.TemporaryDirectory(prefix="moescope-bench-") as folder:
        client = clickhouse_connect.get_client(dsn=f"chdb://{folder}/data")
        migrate.apply(client, load_settings({}))
        best = 0.0
        for window in range(2 if IS_QUICK else 5):
            table = rows_as_arrow(window)
            started = time.perf_counter()
            client.insert_arrow("moescope.otel_metrics_sum", table)
            best = max(best, len(table) / (time.perf_counter() - started))
        client.close()
    return best


def rows_as_arrow(window: int) -> pa.Table:
    cells = SHAPE.num_moe_layers * SHAPE.num_experts
    rows = cells * len(Phase)
    counts = counts_of(0, window)
    resource = [(key, str(value)) for key, value in identity_of(0, "rows").resource_attributes().items()]
    layer = np.repeat(np.asarray(SHAPE.moe_layers).astype(str), SHAPE.num_experts)
    expert = np.tile(np.arange(SHAPE.num_experts).astype(str), SHAPE.num_moe_layers)
    values = np.empty((rows, 3), dtype=object)
    values[:, 0], values[:, 1] = np.tile(layer, len(Phase)), np.tile(expert, len(Phase))
    values[:, 2] = np.repeat([phase.value for phase in counts], cells)
    time_ns = np.full(rows, time.time_ns() + window, dtype="datetime64[ns]")
    return pa.table(
        {
            "ResourceAttributes": maps(
                [key for key, _ in resource] * rows, [v for _, v in resource] * rows, rows
            ),
            "ServiceName": pa.array(["rows"] * rows),
            "MetricName": pa.array(["bench.expert.tokens"] * rows),
            "MetricUnit": pa.array(["{token}"] * rows),
            "Attributes": maps(["moe.layer", "moe.expert", PHASE] * rows, values.ravel().tolist(), rows),
            "StartTimeUnix": pa.array(time_ns - np.timedelta64(10, "s")),
            "TimeUnix": pa.array(time_ns),
            "Value": pa.array(np.concatenate([c.ravel() for c in counts.values()]).astype(np.float64)),
            "AggregationTemporality": pa.array(np.ones(rows, dtype=np.int32)),
            "IsMonotonic": pa.array(np.ones(rows, dtype=bool)),
        }
    )


def maps(keys: list[str], values: list[str], rows: int) -> pa.MapArray:
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * (len(keys) // rows))
    return pa.MapArray.from_arrays(offsets, pa.array(keys), pa.array(values))


def total(ranks: int, windows: int) -> int:
    return sum(int(c.sum()) for r in range(ranks) for w in range(windows) for c in counts_of(r, w).values())


def main() -> None:
    start_ns = (time.time_ns() // SECOND - 900) * SECOND
    cells = SHAPE.num_moe_layers * SHAPE.num_experts * len(Phase)
    indexed_rates, row_rates = [], []
    with running_server():
        warm_up = [list(indexed_requests("warm-up", rank, 1, start_ns)) for rank in range(RANKS)]
        send_all(warm_up)
        for turn in range(ROUNDS):
            indexed = [
                list(indexed_requests(f"indexed-{turn}", rank, INDEXED_WINDOWS, start_ns))
                for rank in range(RANKS)
            ]
            indexed_rates.append(cells * RANKS * INDEXED_WINDOWS / send_all(indexed))
            rows = [
                list(row_requests(f"rows-{turn}", rank, ROW_WINDOWS, start_ns)) for rank in range(ROW_RANKS)
            ]
            row_rates.append(cells * ROW_RANKS * ROW_WINDOWS / send_all(rows))
            found = sql(
                "SELECT sum(activations) FROM expert_activations_per_minute "
                f"WHERE service = 'indexed-{turn}' UNION ALL "
                f"SELECT toUInt64(sum(Value)) FROM otel_metrics_sum WHERE ServiceName = 'rows-{turn}'"
            )
            expected = {str(total(RANKS, INDEXED_WINDOWS)), str(total(ROW_RANKS, ROW_WINDOWS))}
            if set(found) != expected:
                sys.exit(f"the store holds {found}, sent were {expected}")
    bare_row_rate = insert_rows_without_decoding()
    indexed_rate, row_rate = float(np.median(indexed_rates)), float(np.median(row_rates))
    print(f"index-encoded: {indexed_rate / 1e6:6.2f} million counts/s, with expert_load and three roll-ups")
    print(f"row per expert: {row_rate / 1e6:5.2f} million counts/s, in otel_metrics_sum alone")
    print(f"the same rows:  {bare_row_rate / 1e6:5.2f} million counts/s, inserted as Arrow, nothing decoded")
    print_result(
        "ingest",
        indexed_rate / row_rate,
        "times more counts per second",
        at_least=6,
        ratio_to_rows_without_decoding=round(indexed_rate / bare_row_rate, 2),
        counts_per_second=round(indexed_rate),
        row_per_expert_counts_per_second=round(row_rate),
    )


if __name__ == "__main__":
    main()
