"""A store to read the sums from, tiny models, and vLLM in processes of its own."""

import json
import os
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

# A layer index, a phase: its counts by expert.
Sums = dict[tuple[int, str], list[int]]


class Store:
    """Where the engines report to, and what arrived."""

    def __init__(self):
        self.sums_of = {}
        self.tokens_of = {}
        store = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                store.take(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.server.server_port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }

    def take(self, body):
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        def plain(attributes):
            return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in attributes}

        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            service = plain(resource.resource.attributes)["service.name"]
            sums, tokens = self.sums_of.setdefault(service, {}), self.tokens_of.setdefault(service, {})
            for metric in (m for scope in resource.scope_metrics for m in scope.metrics):
                if metric.name == "moe.expert.tokens":
                    for point in metric.histogram.data_points:
                        a = plain(point.attributes)
                        key = (a["moe.layer"], a["moe.phase"])
                        sums[key] = sums.get(key, 0) + np.array(point.bucket_counts)
                if metric.name == "moe.tokens":
                    for point in metric.sum.data_points:
                        a = plain(point.attributes)
                        key = a.get("moe.phase") or a["moe.excluded"]
                        tokens[key] = tokens.get(key, 0) + point.as_int

    def sums(self, service) -> Sums:
        """Activations by layer and phase."""
        sums = self.sums_of.get(service, {})
        return {key: counts.tolist() for key, counts in sums.items() if counts.any()}

    def tokens(self, service) -> dict[str, int]:
        """Token rows by phase, or by why they are excluded."""
        return {key: count for key, count in self.tokens_of.get(service, {}).items() if count}


@pytest.fixture(scope="session")
def store():
    """One store for every engine; each run reports as a service of its own."""
    return Store()


@pytest.fixture
def service(request):
    """A deployment's name that no other test uses."""
    return f"{request.node.name[:60]}-{uuid.uuid4().hex[:8]}"
