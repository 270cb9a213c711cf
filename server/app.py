"""The one-machine server, put together: ports, store, receivers, SQL endpoint, metrics page.

``run`` is what ``moescope serve`` calls; ``Server`` is the same with ``start`` and ``stop``, for tests and
for programs that want a server inside. One server at a time in a process: the embedded engine allows no more.
"""

from __future__ import annotations

import gc
import importlib.metadata
import logging
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, Self

from moescope.schemas.settings import Settings
from moescope.server.access import Gate, open_gate
from moescope.server.data_directory import DataDirectory, data_folder
from moescope.server.fleet_page import FleetPage, OpenJudge
from moescope.server.http_server import HttpServer
from moescope.server.ingest import Ingest
from moescope.server.listeners import (
    METRICS,
    OTLP_GRPC,
    OTLP_HTTP,
    SQL,
    bind,
    check_distinct,
    check_free,
    port_error,
)
from moescope.server.metrics_page import MetricsPage
from moescope.server.otlp_grpc import GrpcReceiver
from moescope.server.otlp_http import HttpReceiver
from moescope.server.own_metrics import OwnMetrics
from moescope.server.remote_store import RemoteStore, redact
from moescope.server.signals_page import OpenSignals, SignalsPage
from moescope.server.sql_endpoint import SqlEndpoint
from moescope.server.sql_runner import SqlRunner
from moescope.server.store import Store
from moescope.server.writer import Writer

_LOG: Final = logging.getLogger(__name__)
_GRACE_SECONDS: Final = 5.0
_GARBAGE_THRESHOLD: Final = 50_000
_SPARE_THREADS: Final = 8
"""Receiver threads beyond all requests that can wait, so that a full queue is answered and not waited for."""

_LOOPBACK_OF: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - addresses that nobody can connect to


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a started server listens. ``sql`` is None when the data lies in another ClickHouse."""

    otlp_grpc: int
    otlp_http: int
    sql: int | None
    metrics: int


class Server:
    """The whole server.

    Args:
        settings: everything; a port of 0 takes a free one, which :attr:`ports` tells after the start.
        dsn: write into this ClickHouse (``http(s)://…``) instead of an embedded engine; there is no SQL
            endpoint then, since that ClickHouse has its own.
        open_judge: opens the analysis for the fleet's part of ``/metrics``; None leaves its numbers out.
        open_signals: opens the analysis for ``/v1/signals``; None leaves it without an answer.
    """

    def __init__(
        self,
        settings: Settings,
        dsn: str | None = None,
        open_judge: OpenJudge | None = None,
        open_signals: OpenSignals | None = None,
    ) -> None:
        self.settings = settings
        self._dsn = dsn
        self._open_judge = open_judge
        self._open_signals = open_signals
        self._stack = ExitStack()
        self.metrics = OwnMetrics()
        self.ports = Ports(0, 0, None, 0)

    def start(self) -> None:
        """Open everything; when this returns every port answers.

        Raises:
            PortError: a port is busy or was given twice; nothing was opened then.
            SettingError: the host needs a token, or the token file or DSN is no good.
            DataDirectoryError: the data directory cannot be used, or another server owns it.
            StoreError: the schema is newer than this version, or the ClickHouse at the DSN does not answer.
        """
        try:
            with ExitStack() as stack:
                self._open(stack)
                self._stack = stack.pop_all()
        except BaseException:
            self.ports = Ports(0, 0, None, 0)
            raise

    def stop(self) -> None:
        """Take nothing new, store what was taken, and close, in that order."""
        self._stack.close()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def _open(self, stack: ExitStack) -> None:
        settings = self.settings
        gate = open_gate(settings)
        has_sql = self._dsn is None
        purposes = [OTLP_GRPC, OTLP_HTTP, METRICS, *([SQL] if has_sql else [])]
        check_distinct(settings, purposes)
        check_free(settings, OTLP_GRPC)
        sockets = {
            purpose: _closed_by(stack, bind(settings, purpose))
            for purpose in purposes
            if purpose != OTLP_GRPC
        }
        store, sql = self._open_store(stack, gate)
        writer = Writer(store, settings, self.metrics)
        stack.callback(writer.close)
        fleet = FleetPage(settings, self.metrics)
        ingest = Ingest(writer, settings, self.metrics, fleet)
        in_batches = settings.ingest_threads * settings.ingest_batch_requests
        threads = settings.ingest_queue_requests + in_batches + _SPARE_THREADS
        executor = _executor(stack, threads, "moescope-receive")
        http = HttpReceiver(ingest, gate, settings, self.metrics, executor)
        signals = SignalsPage(settings, gate, self._open_signals)
        page = MetricsPage(self.metrics, fleet, store, gate, signals)
        apps: dict[socket.socket, Any] = {sockets[OTLP_HTTP]: http.app, sockets[METRICS]: page.app}
        if sql is not None:
            apps[sockets[SQL]] = sql.app
        http_server = HttpServer(apps)
        stack.callback(http_server.stop)
        if sql is not None:
            stack.callback(sql.cancel_queries)
        http_server.start()
        grpc_receiver = GrpcReceiver(ingest, gate, settings, self.metrics, executor)
        stack.callback(grpc_receiver.stop, _GRACE_SECONDS)
        self.ports = Ports(
            otlp_grpc=self._listen_grpc(grpc_receiver),
            otlp_http=_port(sockets[OTLP_HTTP]),
            sql=_port(sockets[SQL]) if sql is not None else None,
            metrics=_port(sockets[METRICS]),
        )
        if self._open_judge is not None:
            stack.callback(fleet.stop)
            fleet.start(self._open_judge, self._dsn or self._own_dsn(gate))
        stack.callback(signals.stop)
        signals.start(self._dsn or self._own_dsn(gate))

    def _open_store(self, stack: ExitStack, gate: Gate) -> tuple[Store, SqlEndpoint | None]:
        if self._dsn is not None:
            remote = RemoteStore(self._dsn, self.settings)
            stack.callback(remote.close)
            self.metrics.set_versions(_version(), "")
            return remote, None
        # The engine takes half a second and a quarter of a gigabyte; a server without it does not load it.
        from moescope.server.embedded_store import EmbeddedStore  # noqa: PLC0415 - see above
        from moescope.server.engine import Engine  # noqa: PLC0415 - see above

        directory = DataDirectory(data_folder(self.settings))
        stack.callback(directory.close)
        engine = Engine(directory.engine, self.settings)
        stack.callback(engine.close)
        store = EmbeddedStore(engine, directory, self.metrics)
        stack.callback(store.close)
        self.metrics.set_versions(_version(), engine.version)
        executor = _executor(stack, self.settings.sql_threads, "moescope-sql")
        runner = SqlRunner(engine, self.settings)
        return store, SqlEndpoint(runner, gate, self.settings, self.metrics, executor)

    def _own_dsn(self, gate: Gate) -> str:
        """The DSN at which this process reaches its own SQL endpoint."""
        host = _LOOPBACK_OF.get(self.settings.host, self.settings.host)
        return f"http://{gate.url_credentials}{_url_host(host)}:{self.ports.sql}/{self.settings.database}"

    def _listen_grpc(self, receiver: GrpcReceiver) -> int:
        try:
            return receiver.listen(f"{_url_host(self.settings.host)}:{self.settings.otlp_grpc_port}")
        except RuntimeError as error:
            # It was free a moment ago.
            raise port_error(self.settings, OTLP_GRPC, OSError(str(error))) from None


def run(
    settings: Settings,
    *,
    dsn: str | None = None,
    open_judge: OpenJudge | None = None,
    open_signals: OpenSignals | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then store what was taken and return.

    Raises:
        MoescopeError: see :meth:`Server.start`.
    """
    stop = threading.Event()

    def on_signal(number: int, _: FrameType | None) -> None:
        _LOG.info("%s: storing what was taken, then stopping", signal.Signals(number).name)
        stop.set()

    server = Server(settings, dsn, open_judge, open_signals)
    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with server:
            _collect_garbage_rarely()
            for line in describe(server, settings, dsn):
                _LOG.info(line)
            stop.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _collect_garbage_rarely() -> None:
    """A request makes thousands of objects that die with it and are in no cycle; what is here now stays."""
    gc.freeze()
    gc.set_threshold(_GARBAGE_THRESHOLD, 50, 50)


def describe(server: Server, settings: Settings, dsn: str | None = None) -> list[str]:
    """Say where a started server listens and where its data is, a line each."""
    host, ports = _url_host(settings.host), server.ports
    lines = [
        f"OTLP/gRPC    {host}:{ports.otlp_grpc}",
        f"OTLP/HTTP    http://{host}:{ports.otlp_http}/v1/metrics",
    ]
    if dsn is None:
        lines.append(f"SQL          http://{host}:{ports.sql}/ ({_mode(settings)})")
        lines.append(f"data         {data_folder(settings)}")
    else:
        lines.append(f"SQL          not here: the data goes to {redact(dsn)}, ask there")
    lines.append(f"health       http://{host}:{ports.metrics}/readyz, /healthz, /metrics, /v1/signals")
    return lines


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _mode(settings: Settings) -> str:
    return "read-only" if settings.sql_read_only else "WRITES ALLOWED: MOESCOPE_SQL_READ_ONLY=false"


def _executor(stack: ExitStack, threads: int, name: str) -> ThreadPoolExecutor:
    executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
    stack.callback(executor.shutdown)
    return executor


def _closed_by(stack: ExitStack, listener: socket.socket) -> socket.socket:
    stack.callback(listener.close)
    return listener


def _port(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def _version() -> str:
    try:
        return importlib.metadata.version("moescope")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
