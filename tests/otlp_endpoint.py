"""A real OTLP endpoint on loopback, whose answers a test decides."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


class Endpoint:
    """What came in, and what is answered: the script's next entry, or success when it has ended."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.script: list = []
        self.response = ExportMetricsServiceResponse()
        self.url = ""


class GrpcEndpoint(Endpoint):
    """Script entries: a grpc.StatusCode, or (StatusCode, retry seconds), or "hang" for a lost answer."""

    def __init__(self, port: int = 0) -> None:
        super().__init__()
        self.server = grpc.server(ThreadPoolExecutor(2))
        handler = grpc.unary_unary_rpc_method_handler(self._export)
        service = grpc.method_handlers_generic_handler(
            "opentelemetry.proto.collector.metrics.v1.MetricsService", {"Export": handler}
        )
        self.server.add_generic_rpc_handlers((service,))
        self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")
        self.url = f"http://127.0.0.1:{self.port}"
        self.server.start()

    def _export(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        self.bodies.append(body)
        self.headers.append(dict(context.invocation_metadata()))
        if self.script:
            code, *rest = entry if isinstance(entry := self.script.pop(0), tuple) else (entry,)
            if rest:
                detail = AnyMessage()
                detail.Pack(RetryInfo(retry_delay=Duration(nanos=int(rest[0] * 1e9))))
                status = Status(code=code.value[0], details=[detail])
                context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            context.abort(code, "as the test says")
        return self.response.SerializeToString()

    def stop(self) -> None:
        self.server.stop(0).wait()


class HttpEndpoint(Endpoint):
    """Script entries: a status code, or (status code, headers)."""

    def __init__(self) -> None:
        super().__init__()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                endpoint.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.headers.append({**self.headers, "path": self.path})
                code, headers = 200, {}
                if endpoint.script:
                    entry = endpoint.script.pop(0)
                    code, headers = entry if isinstance(entry, tuple) else (entry, {})
                body = endpoint.response.SerializeToString() if code == 200 else b""
                self.send_response(code)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture
def grpc_endpoint() -> Iterator[GrpcEndpoint]:
    endpoint = GrpcEndpoint()
    yield endpoint
    endpoint.stop()


@pytest.fixture
def http_endpoint() -> Iterator[HttpEndpoint]:
    endpoint = HttpEndpoint()
    yield endpoint
    endpoint.stop()


@pytest.fixture(params=["grpc", "http/protobuf"])
def endpoint(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    """Both protocols run the same test."""
    made = GrpcEndpoint() if request.param == "grpc" else HttpEndpoint()
    made.protocol = request.param
    yield made
    made.stop()
