"""Send a person's query to a store, read-only and within limits, so that it can be cancelled meanwhile."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import threading
import uuid
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import SplitResult, parse_qs, unquote, urlencode, urlsplit

from moescope.analysis.sql_answer import FORMAT
from moescope.analysis.sql_problem import is_about_settings, is_read_only_already
from moescope.analysis.store import database_of, root_reason, without_password
from moescope.schemas.errors import MissingExtraError, QueryError, StoreUnavailableError
from moescope.schemas.settings import Settings
from moescope.schemas.sql_guard import Guard
from moescope.schemas.sql_handle import Handle, query_error, quote_name, quote_text

MAX_ROWS: Final = 100_000
"""Most rows of one answer, where the settings allow more: a browser is at the other end."""
_MAX_BYTES: Final = 64 * 2**20
_GRACE_SECONDS: Final = 15.0
"""On top of the store's own limit of time, which is the one that explains itself."""
_READ_ONLY: Final = {"readonly": "1", "cancel_http_readonly_queries_on_client_close": "1"}
_PORTS: Final = {"http": 8123, "https": 8443}


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """What a store sent back: its format, and counts by ClickHouse's names."""

    body: bytes
    answered_format: str
    summary: Mapping[str, str]


class Transport(Protocol):
    """One query on its way. ``run`` blocks; ``cancel`` comes from another thread."""

    query_id: str

    def run(self, sql: str) -> RawAnswer:
        """Send the query and wait for its answer."""

    def cancel(self) -> None:
        """Have the store stop it."""


def row_limit(settings: Settings) -> int:
    """Most rows that an answer has."""
    return min(MAX_ROWS, settings.sql_max_result_rows)


def _limits(settings: Settings) -> dict[str, str]:
    return {
        "max_execution_time": f"{settings.sql_max_seconds:g}",
        "max_result_rows": str(row_limit(settings)),
        "max_result_bytes": str(min(_MAX_BYTES, settings.sql_max_memory_bytes)),
        "max_memory_usage": str(settings.sql_max_memory_bytes),
        # Cut a long answer and say so: a person who looks around wants the rows that there are.
        "result_overflow_mode": "break",
        "output_format_json_quote_64bit_integers": "0",
        "output_format_json_quote_decimals": "1",
        "output_format_json_quote_denormals": "1",
    }


class HttpTransport:
    """A query over ClickHouse's HTTP interface. Its server stops the query when the connection closes."""

    def __init__(self, settings: Settings) -> None:
        self.query_id = f"moescope-page-{uuid.uuid4()}"
        self._settings = settings
        self._parts = urlsplit(settings.dsn)
        self._connection: http.client.HTTPConnection | None = None
        self._is_cancelled = threading.Event()

    def run(self, sql: str) -> RawAnswer:
        """Send the query and wait for its answer.

        Raises:
            QueryError: the store refused it.
            StoreUnavailableError: nobody answers, or the connection broke.
        """
        attempts = ({**_READ_ONLY, **_limits(self._settings)}, _READ_ONLY)
        for attempt in attempts:
            try:
                return self._send(sql, attempt)
            except QueryError as error:
                # Who may set no limits, or none so high, has those of the server.
                if not is_about_settings(error):
                    raise
                refused = error
        if not self._may_only_read():
            raise refused
        return self._send(sql, {})

    def _may_only_read(self) -> bool:
        """Whether the server itself lets this user only read.

        Asked with a query of ours: in one that a person typed, ``SETTINGS`` brings the same refusal, and
        without ``readonly`` that query could write.
        """
        try:
            self._send("SELECT 1", _READ_ONLY)
        except QueryError as error:
            return is_read_only_already(error)
        return False

    def cancel(self) -> None:
        """Close the connection."""
        self._is_cancelled.set()
        connection = self._connection
        if connection is not None and connection.sock is not None:
            try:
                connection.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return

    def _send(self, sql: str, settings: Mapping[str, str]) -> RawAnswer:
        parameters = {
            "database": database_of(self._settings.dsn),
            "default_format": FORMAT,
            "query_id": self.query_id,
            "wait_end_of_query": "1",
            **settings,
        }
        try:
            with self._connected() as connection:
                connection.request(
                    "POST", f"/?{urlencode(parameters)}", sql.encode(), _credentials(self._parts)
                )
                response = connection.getresponse()
                body = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnavailableError(
                f"{without_password(self._settings.dsn)} gave no answer ({root_reason(error)})"
            ) from error
        code = response.headers.get("X-ClickHouse-Exception-Code", "")
        if code or response.status >= 400:
            raise _refused(body, code, response.status)
        summary = json.loads(response.headers.get("X-ClickHouse-Summary") or "{}")
        return RawAnswer(body, response.headers.get("X-ClickHouse-Format") or FORMAT, summary)

    @contextmanager
    def _connected(self) -> Iterator[http.client.HTTPConnection]:
        connection = self._connection = _connection(
            self._parts, self._settings.sql_max_seconds + _GRACE_SECONDS
        )
        try:
            connection.connect()
            if self._is_cancelled.is_set():
                raise ConnectionAbortedError
            yield connection
        finally:
            connection.close()


class EmbeddedTransport:
    """A query on the embedded engine, which this process opens; checked as the server checks it."""

    def __init__(self, settings: Settings) -> None:
        self.query_id = f"moescope-page-{uuid.uuid4()}"
        self._settings = settings
        # As clickhouse_connect resolves it: the engine compares paths as text.
        self._path = os.path.realpath(urlsplit(settings.dsn).path)

    def run(self, sql: str) -> RawAnswer:
        """Run the query.

        Raises:
            QueryError: the engine or the guard refused it.
            StoreUnavailableError: another process has the folder open.
        """
        guard = Guard(self._lend)
        with self._lend() as handle:
            checked = guard.check(handle, sql, {})
            limits = {**_limits(self._settings), "log_comment": self.query_id}
            pairs = ", ".join(f"{name} = {quote_text(value)}" for name, value in limits.items())
            handle.query(f"SET {pairs}, allow_introspection_functions = 0, session_timezone = 'UTC'")
            handle.query(f"USE {quote_name(database_of(self._settings.dsn))}")
            handle.query("SET readonly = 1")
            result = handle.query(checked.sql, FORMAT)
            summary = {
                "elapsed_ns": str(int(result.elapsed() * 1e9)),
                "read_rows": str(result.storage_rows_read()),
                "read_bytes": str(result.storage_bytes_read()),
            }
            return RawAnswer(bytes(result.bytes() or b""), checked.output_format or FORMAT, summary)

    def cancel(self) -> None:
        """Have the engine stop it."""
        with self._lend() as handle:
            handle.query(f"KILL QUERY WHERE Settings['log_comment'] = {quote_text(self.query_id)} ASYNC")

    @contextmanager
    def _lend(self) -> Iterator[Handle]:
        try:
            from chdb.state.sqlitelike import Connection  # noqa: PLC0415 - only a chdb:// DSN needs it
        except ImportError as error:
            raise MissingExtraError("Reading chdb://", "server") from error
        try:
            handle = Handle(Connection(self._path))
        except RuntimeError as error:
            raise StoreUnavailableError(
                f"the embedded engine at {self._path} cannot be opened; one process owns a folder at a time. "
                "Read through the process that does (`moescope serve`) by its http:// DSN, or stop it."
            ) from error
        try:
            yield handle
        finally:
            handle.close()


def _connection(parts: SplitResult, timeout: float) -> http.client.HTTPConnection:
    host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 8123)
    if parts.scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=timeout)
    options = parse_qs(parts.query)
    context = ssl.create_default_context(cafile=options.get("ca_cert", [None])[0])
    if options.get("verify", ["true"])[0].lower() in {"0", "false", "no"}:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)


def _credentials(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def _refused(body: bytes, code: str, status: int) -> QueryError:
    text = body.decode("utf-8", "replace").strip() or f"HTTP status {status}"
    # A server adds its version, which has parentheses of its own.
    error = query_error(text.rpartition(" (version ")[0] or text)
    return QueryError(str(error), code=int(code) if code.isdigit() else error.code, name=error.name)
