"""Real servers in this process. One at a time: the embedded engine allows no more."""

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import chdb
import grpc
import pytest

from moescope.schemas.settings import Settings
from moescope.server.app import Server
from moescope.server.data_directory import data_folder
from moescope.server.otlp_messages import EXPORT_METHOD

FREE_PORTS = {"otlp_grpc_port": 0, "otlp_http_port": 0, "sql_port": 0, "metrics_port": 0}


class RunningServer(Server):
    """A server with what a test asks it most."""

    @property
    def engine_folder(self) -> Path:
        return data_folder(self.settings) / "engine"

    def url(self, name: str, path: str = "/") -> str:
        return f"http://127.0.0.1:{getattr(self.ports, name)}{path}"

    def sql(self, query: str, **parameters: str) -> list[list]:
        """Rows of a query, as JSON has them."""
        arguments = {"default_format": "JSONCompact", "output_format_json_quote_64bit_integers": "0"}
        url = self.url("sql", "/?") + urllib.parse.urlencode(arguments | parameters)
        with urllib.request.urlopen(url, data=query.encode(), timeout=60) as answer:
            return json.load(answer)["data"]

    def engine_scalar(self, query: str) -> str:
        """Ask the engine itself, past the endpoint."""
        with closing(chdb.connect(str(self.engine_folder))) as connection:
            return bytes(connection.query(query, "TabSeparatedRaw").bytes()).decode().strip()

    def page(self) -> str:
        """The metrics page."""
        with urllib.request.urlopen(self.url("metrics", "/metrics"), timeout=10) as answer:
            return answer.read().decode()

    def export(self, body: bytes, **metadata: str) -> bytes:
        """Send a request over gRPC and return the answer."""
        with grpc.insecure_channel(f"127.0.0.1:{self.ports.otlp_grpc}") as channel:
            return channel.unary_unary(EXPORT_METHOD)(body, timeout=60, metadata=tuple(metadata.items()))

    def expert_sums(self, service: str) -> list[list[int]]:
        """Layer, expert and activations of a service, where there are any."""
        return self.sql(
            "SELECT layer, expert, sum(activations) FROM expert_activations_per_minute "
            "WHERE service = {service:String} GROUP BY ALL HAVING sum(activations) > 0 ORDER BY ALL",
            param_service=service,
        )


@pytest.fixture(scope="module")
def make_server(tmp_path_factory) -> Iterator:
    """Start a server with settings of the test's own; whoever ran before is stopped."""
    running: list[RunningServer] = []

    def start(*, dsn: str | None = None, open_judge=None, open_signals=None, **overrides) -> RunningServer:
        while running:
            running.pop().stop()
        folder = str(tmp_path_factory.mktemp("data"))
        defaults = FREE_PORTS | {"data_dir": folder, "engine_memory_bytes": 2 * 2**30}
        server = RunningServer(Settings(**defaults | overrides), dsn, open_judge, open_signals)
        server.start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.stop()


@pytest.fixture(scope="module")
def server(make_server) -> RunningServer:
    """A server as people start it, on free ports."""
    return make_server()
