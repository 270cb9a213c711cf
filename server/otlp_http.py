"""The OTLP/HTTP receiver: ``POST /v1/metrics``, protobuf or JSON, answered in the request's own encoding."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any, Final

from google.protobuf import json_format
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from moescope.schemas.errors import MalformedRequestError, QueueFullError
from moescope.schemas.settings import Settings
from moescope.server.access import Gate
from moescope.server.answers import (
    Failure,
    export_response,
    failure_of,
    outcome_of,
    retry_after_header,
    status_message,
)
from moescope.server.content_encoding import read_body
from moescope.server.ingest import Ingest, Receipt
from moescope.server.otlp_decode import Encoding
from moescope.server.own_metrics import OwnMetrics

_LOG: Final = logging.getLogger(__name__)
_PROTOCOL: Final = "http"
_OTHER_SIGNALS: Final = ("/v1/traces", "/v1/logs", "/v1development/profiles")


class HttpReceiver:
    """The application behind the OTLP/HTTP port.

    Args:
        ingest: takes the bodies, on the executor's threads.
        gate: asks for the token, before the body is read.
        settings: largest request, and how many may be in memory at once.
        metrics: counts outcomes.
        executor: shared with the gRPC receiver.
    """

    def __init__(
        self, ingest: Ingest, gate: Gate, settings: Settings, metrics: OwnMetrics, executor: Executor
    ) -> None:
        self._ingest = ingest
        self._gate = gate
        self._settings = settings
        self._metrics = metrics
        self._executor = executor
        self._under_way = 0
        routes = [Route("/v1/metrics", self._export, methods=["POST"])]
        routes += [Route(path, _not_stored, methods=["POST"]) for path in _OTHER_SIGNALS]
        self.app = Starlette(routes=routes)

    async def _export(self, request: Request) -> Response:
        encoding = Encoding.PROTOBUF
        try:
            self._gate.check_bearer(request.headers.get("authorization"))
            encoding = _encoding(request.headers)
            receipt = await self._accept(request, encoding)
        except Exception as error:
            failure = failure_of(error)
            self._metrics.requests.labels(_PROTOCOL, failure.outcome).inc()
            if failure.outcome == "failed":
                _LOG.exception("an OTLP/HTTP request failed")
            return _failure_response(failure, str(error), encoding)
        self._metrics.requests.labels(_PROTOCOL, outcome_of(receipt)).inc()
        return _response(export_response(receipt), encoding, 200)

    async def _accept(self, request: Request, encoding: Encoding) -> Receipt:
        # Bodies are read before a thread takes them, so their number is bounded here.
        if self._under_way >= 2 * self._settings.ingest_queue_requests:
            raise QueueFullError(f"{self._under_way} requests are being read; send this one again later")
        self._under_way += 1
        try:
            packing = request.headers.get("content-encoding")
            body = await read_body(request.stream(), packing, self._settings.max_request_bytes)
            self._metrics.request_bytes.labels(_PROTOCOL).inc(len(body))
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._executor, self._ingest.accept, body, encoding)
        finally:
            self._under_way -= 1


def _encoding(headers: Mapping[str, str]) -> Encoding:
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        return Encoding(content_type)
    except ValueError:
        raise MalformedRequestError(
            f"Content-Type {content_type!r} is not OTLP; send {Encoding.PROTOBUF} or {Encoding.JSON}"
        ) from None


def _failure_response(failure: Failure, text: str, encoding: Encoding) -> Response:
    response = _response(status_message(failure, text), encoding, failure.http_status)
    retry_after = retry_after_header(failure)
    if retry_after is not None:
        response.headers["retry-after"] = retry_after
    if failure.outcome == "unauthenticated":
        response.headers["www-authenticate"] = "Bearer"
    return response


def _response(message: Any, encoding: Encoding, status: int) -> Response:
    if encoding is Encoding.JSON:
        content: str | bytes = json_format.MessageToJson(message, indent=None)
    else:
        content = message.SerializeToString()
    return Response(content, status_code=status, media_type=encoding.value)


async def _not_stored(request: Request) -> Response:
    return Response(
        f"moescope stores metrics only; send {request.url.path} to another endpoint "
        "(OTEL_TRACES_EXPORTER=none or OTEL_LOGS_EXPORTER=none turns it off)\n",
        status_code=404,
        media_type="text/plain",
    )
