"""The ClickHouse HTTP interface: stock clients, Grafana and curl read the store through it unchanged."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
import uuid
from concurrent.futures import Executor
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from moescope.schemas.errors import MalformedRequestError, QueryError, UnauthenticatedError
from moescope.schemas.settings import Settings
from moescope.schemas.sql_refusals import AUTHENTICATION_FAILED, BAD_ARGUMENTS, READONLY, refusal
from moescope.server.access import Gate
from moescope.server.content_encoding import COMPRESSORS, pick_encoding, read_body
from moescope.server.own_metrics import OwnMetrics
from moescope.server.sql_errors import error_text, http_status
from moescope.server.sql_request import SqlRequest, parse_request
from moescope.server.sql_runner import Answer, SqlRunner

_LOG: Final = logging.getLogger(__name__)
_OK: Final = "Ok.\n"
_PLAIN: Final = "text/plain; charset=UTF-8"
_MIN_COMPRESSED_BYTES: Final = 256
_CANCEL_SECONDS: Final = 0.2
"""Between two attempts to end a query whose client has left."""


class SqlEndpoint:
    """The application behind the SQL port.

    Args:
        runner: runs the queries, on the executor's threads.
        gate: asks for the token as the client's password.
        settings: default database and largest body.
        metrics: counts outcomes.
        executor: as many threads as queries may run at once.
    """

    def __init__(
        self,
        runner: SqlRunner,
        gate: Gate,
        settings: Settings,
        metrics: OwnMetrics,
        executor: Executor,
    ) -> None:
        self._runner = runner
        self._gate = gate
        self._settings = settings
        self._metrics = metrics
        self._executor = executor
        self._display_name = socket.gethostname()
        self.app = Starlette(
            routes=[
                Route("/", self._query, methods=["GET", "POST"]),
                Route("/ping", _ok, methods=["GET", "POST"]),
                Route("/replicas_status", _ok, methods=["GET", "POST"]),
            ],
            exception_handlers={404: _not_found},
        )

    def cancel_queries(self) -> None:
        """End what is running, so that a shutdown does not wait for it."""
        self._runner.cancel()

    async def _query(self, request: Request) -> Response:
        started = time.perf_counter()
        try:
            response = await self._answer(request)
        except QueryError as error:
            outcome = "refused" if error.code == READONLY else "failed"
            if error.code == AUTHENTICATION_FAILED:
                outcome = "unauthenticated"
            self._metrics.queries.labels(outcome).inc()
            response = self._error(error)
        else:
            self._metrics.queries.labels("ok").inc()
        self._metrics.query_seconds.observe(time.perf_counter() - started)
        return response

    async def _answer(self, request: Request) -> Response:
        sql_request = await self._read(request)
        if sql_request.is_empty:
            return Response(_OK, media_type=_PLAIN)
        loop = asyncio.get_running_loop()
        ticket = str(uuid.uuid4())
        running = loop.run_in_executor(self._executor, self._run, sql_request, ticket)
        await self._end_when_client_leaves(request, running, ticket)
        answer = await running
        self._metrics.query_bytes.inc(len(answer.data))
        return await loop.run_in_executor(None, self._response, sql_request, answer)

    async def _end_when_client_leaves(
        self, request: Request, running: asyncio.Future[Answer], ticket: str
    ) -> None:
        """Wait for an answer; a client that hangs up wants none, so its query makes room for others."""
        leaving = asyncio.ensure_future(_hang_up(request))
        either: set[asyncio.Future[Any]] = {running, leaving}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            loop = asyncio.get_running_loop()
            while not running.done():
                # One that still waits for a thread, or is being checked, is not found yet.
                await loop.run_in_executor(None, self._runner.cancel_one, ticket)
                await asyncio.wait({running}, timeout=_CANCEL_SECONDS)
        finally:
            leaving.cancel()

    async def _read(self, request: Request) -> SqlRequest:
        headers = request.headers
        parameters = request.query_params
        try:
            self._gate.check_clickhouse(headers, parameters)
            limit = self._settings.max_request_bytes
            body = await read_body(request.stream(), request.headers.get("content-encoding"), limit)
        except UnauthenticatedError as error:
            raise refusal(AUTHENTICATION_FAILED, str(error)) from None
        except MalformedRequestError as error:
            raise refusal(BAD_ARGUMENTS, str(error)) from None
        database = self._settings.database
        return parse_request(request.method, parameters.multi_items(), headers, body, database)

    def _run(self, request: SqlRequest, ticket: str) -> Answer:
        try:
            return self._runner.run(request, ticket)
        except QueryError:
            raise
        except Exception as error:
            _LOG.exception("a query failed in the server itself")
            raise refusal(BAD_ARGUMENTS, f"{type(error).__name__}: {error}") from error

    def _response(self, request: SqlRequest, answer: Answer) -> Response:
        headers = {
            "X-ClickHouse-Query-Id": request.query_id,
            "X-ClickHouse-Format": answer.output_format,
            "X-ClickHouse-Timezone": request.settings.get("session_timezone", "UTC"),
            "X-ClickHouse-Server-Display-Name": self._display_name,
            "X-ClickHouse-Summary": json.dumps(answer.summary, separators=(",", ":")),
        }
        data = answer.data
        packing = pick_encoding(request.accept_encoding)
        if packing is not None and len(data) >= _MIN_COMPRESSED_BYTES:
            data = COMPRESSORS[packing](data)
            headers["Content-Encoding"] = packing
        content_type = self._runner.content_type(answer.output_format)
        return Response(data, headers={**headers, "Content-Type": content_type})

    def _error(self, error: QueryError) -> Response:
        headers = {
            "X-ClickHouse-Exception-Code": str(error.code or 0),
            "X-ClickHouse-Server-Display-Name": self._display_name,
            "Content-Type": _PLAIN,
        }
        return Response(
            error_text(error, self._runner.version), status_code=http_status(error), headers=headers
        )


async def _ok(_: Request) -> Response:
    return Response(_OK, media_type=_PLAIN)


async def _hang_up(request: Request) -> None:
    """Return when the client closes its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _not_found(request: Request, _: Exception) -> Response:
    text = f"There is no handle {request.url.path}\n\nUse / or /ping for health checks.\n"
    return Response(text, status_code=404, media_type=_PLAIN)
