"""``GET /v1/signals``: what a gateway is told of each endpoint, on the metrics port.

However many ask, the store is read once at a time, and not again before ``signals_interval_seconds`` and the
time that the reading took are over: whoever comes meanwhile waits for the reading under way, or gets what it
found. A thread of its own reads, so that no other port waits for the store.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Protocol

from starlette.requests import Request
from starlette.responses import Response

from moescope.schemas.errors import MoescopeError, UnauthenticatedError
from moescope.schemas.settings import Settings
from moescope.schemas.signals import FleetSignals
from moescope.server.access import Gate

_LOG: Final = logging.getLogger(__name__)
_JSON: Final = "application/json"
_PARAMETERS: Final = frozenset({"service"})
_PATIENCE_SECONDS: Final = 30.0
"""How long a request waits for a reading; a gateway has long gone on by then."""
_STOP_SECONDS: Final = 2.0


class Signals(Protocol):
    """The analysis, as the composition root hands it in: this room does not know it."""

    def read(self) -> FleetSignals:
        """Say what is known of every endpoint now."""

    def close(self) -> None:
        """Let go of the store."""


OpenSignals = Callable[[str], Signals]
"""Takes the DSN of the store that the server writes to. Called on the thread that reads.

Raises:
    MissingExtraError: the analysis is not installed; the page says so.
"""


@dataclass(frozen=True, slots=True)
class _Reading:
    """What was read, or why nothing could be; until when that holds, on the monotonic clock."""

    signals: FleetSignals | None
    reason: str
    good_until: float


class SignalsPage:
    """The page. Safe to use from several threads.

    Args:
        settings: ``signals_interval_seconds``.
        gate: asks for the server's token.
        open_signals: opens the analysis; None: every answer says that there is none. Who asks before
            :meth:`start` waits for it: the port answers first.
    """

    def __init__(self, settings: Settings, gate: Gate, open_signals: OpenSignals | None) -> None:
        self._settings = settings
        self._gate = gate
        self._open_signals = open_signals
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._under_way: Future[_Reading] | None = None
        self._last: _Reading | None = None
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def start(self, dsn: str) -> None:
        """Begin to read the store at ``dsn``."""
        if self._open_signals is not None:
            self._thread = threading.Thread(
                target=self._run, args=(self._open_signals, dsn), name="moescope-signals", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Read no more. A query under way is left to the one who closes the store."""
        with self._lock:
            self._is_stopped = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)

    async def respond(self, request: Request) -> Response:
        """Answer one request."""
        try:
            self._gate.check_bearer(request.headers.get("authorization"))
        except UnauthenticatedError as error:
            return _refusal(401, str(error), {"www-authenticate": "Bearer"})
        unknown = sorted(set(request.query_params) - _PARAMETERS)
        if unknown:
            return _refusal(400, f"unknown parameter {unknown[0]!r}; the only one is service")
        reading = await self._reading()
        if reading.signals is None:
            return _refusal(503, reading.reason, {"retry-after": str(self._max_age)})
        return self._answer(reading.signals, request)

    @property
    def _max_age(self) -> int:
        return max(1, math.ceil(self._settings.signals_interval_seconds))

    def _answer(self, signals: FleetSignals, request: Request) -> Response:
        body = json.dumps(signals.to_dict(request.query_params.get("service")), allow_nan=False).encode()
        tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
        headers = {"etag": tag, "cache-control": f"private, max-age={self._max_age}"}
        known = request.headers.get("if-none-match", "")
        if {tag, "*"} & {one.strip().removeprefix("W/") for one in known.split(",")}:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=_JSON, headers=headers)

    async def _reading(self) -> _Reading:
        if self._open_signals is None:
            return _Reading(None, "this server runs without the analysis", 0.0)
        with self._lock:
            if self._last is not None and time.monotonic() < self._last.good_until:
                return self._last
            if self._is_stopped:
                return _Reading(None, "the server is stopping", 0.0)
            if self._under_way is None:
                self._under_way = Future()
                self._wanted.set()
            under_way = self._under_way
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(under_way)), _PATIENCE_SECONDS)
        except TimeoutError:
            return _Reading(None, f"the store did not answer within {_PATIENCE_SECONDS:.0f} s", 0.0)

    def _run(self, open_signals: OpenSignals, dsn: str) -> None:
        source: Signals | None = None
        while True:
            self._wanted.wait()
            with self._lock:
                self._wanted.clear()
                under_way, is_stopped = self._under_way, self._is_stopped
            if is_stopped:
                self._finish(under_way, _Reading(None, "the server is stopping", 0.0))
                break
            started = time.monotonic()
            try:
                source = source or open_signals(dsn)
                signals, reason = source.read(), ""
            except Exception as error:
                signals, reason = None, _reason(error)
            spent = time.monotonic() - started
            good_until = time.monotonic() + max(self._settings.signals_interval_seconds, spent)
            self._finish(under_way, _Reading(signals, reason, good_until))
        if source is not None:
            source.close()

    def _finish(self, under_way: Future[_Reading] | None, reading: _Reading) -> None:
        with self._lock:
            self._last, self._under_way = reading, None
        if under_way is not None and not under_way.done():
            under_way.set_result(reading)


def _reason(error: Exception) -> str:
    if isinstance(error, MoescopeError):
        return str(error)
    _LOG.warning("/v1/signals: %s", str(error) or type(error).__name__, exc_info=error)
    return f"the analysis failed: {type(error).__name__}"


def _refusal(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    body = json.dumps({"error": message}).encode()
    return Response(body, status_code=status, media_type=_JSON, headers=headers)
