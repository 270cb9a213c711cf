"""From the bytes of a request to rows on disk: decode, judge, land, queue, wait."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, replace
from typing import Final

from moescope.schemas.errors import StoreUnavailableError
from moescope.schemas.settings import Settings
from moescope.server.fleet_page import FleetPage
from moescope.server.landed_request import LandedRequest, combine, digest_of
from moescope.server.landing import land
from moescope.server.otlp_decode import Encoding, decode
from moescope.server.otlp_messages import OfficialRequest
from moescope.server.own_metrics import OwnMetrics
from moescope.server.page_windows import PageWindows, page_windows
from moescope.server.validate import MAX_MESSAGES, Validator, Verdict
from moescope.server.writer import Writer

WAIT_SECONDS: Final = 120.0
"""Longest wait for the store; a client gives up long before."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a request that was stored.

    ``rejected`` points were left out; ``message`` says why, in sentences, and is empty where there are none.
    """

    accepted: int
    rejected: int
    message: str


class Ingest:
    """What both receivers hand their bodies to. Blocking and thread-safe."""

    def __init__(
        self, writer: Writer, settings: Settings, metrics: OwnMetrics, fleet: FleetPage | None = None
    ) -> None:
        self._writer = writer
        self._settings = settings
        self._metrics = metrics
        self._fleet = FleetPage(settings, metrics) if fleet is None else fleet
        self._validator = Validator(settings)
        self._preparing = threading.BoundedSemaphore(os.cpu_count() or 1)
        _warm_up()

    def accept(self, body: bytes, encoding: Encoding) -> Receipt:
        """Store what can be stored of a request and say what could not.

        Args:
            body: the request, decompressed.
            encoding: how it is written.

        Raises:
            MalformedRequestError: the body is no OTLP, or too large once spread out.
            QueueFullError: too many requests wait.
            StoreUnavailableError: the store did not take it; the same request may come again.
            RequestRefusedError: the store will never take it.
        """
        request, verdict, windows = self._prepare(body, encoding)
        if request.tables:
            self._store(request)
            self._fleet.add(request.digest, windows)
        self._count(verdict)
        return _receipt(verdict)

    def _prepare(self, body: bytes, encoding: Encoding) -> tuple[LandedRequest, Verdict, PageWindows]:
        # More at once would only push each other's arrays out of the caches.
        with self._preparing:
            now_ns = time.time_ns()
            verdict = self._validator.judge(decode(body, encoding), now_ns)
            tables = land(verdict.blocks, max_request_bytes=self._settings.max_request_bytes)
            request = LandedRequest(digest_of(body), tables, len(body))
            windows = page_windows(verdict.blocks, now_ns)
        # The points and their arrays are not needed while the request waits.
        return request, replace(verdict, blocks=()), windows

    def _store(self, request: LandedRequest) -> None:
        try:
            self._writer.submit(request).result(WAIT_SECONDS)
        except TimeoutError:
            raise StoreUnavailableError(
                f"the store took longer than {WAIT_SECONDS:.0f} s; send the request again, it is stored once"
            ) from None

    def _count(self, verdict: Verdict) -> None:
        self._metrics.accepted_points.inc(verdict.accepted)
        for reason, count in verdict.rejected.items():
            self._metrics.rejected_points.labels(reason.value).inc(count)


def _warm_up() -> None:
    """Take one point through what a request goes through: pyarrow looks for pandas at its first array."""
    request = OfficialRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.histogram.data_points.add(bucket_counts=[0], time_unix_nano=1)
    body = request.SerializeToString()
    tables = land(decode(body, Encoding.PROTOBUF), max_request_bytes=len(body))
    combine([LandedRequest(digest_of(body), tables, len(body))])


def _receipt(verdict: Verdict) -> Receipt:
    sentences = [str(error) for error in verdict.errors[:MAX_MESSAGES]]
    left_out = len(verdict.rejected) - len({error.reason for error in verdict.errors[:MAX_MESSAGES]})
    if left_out > 0:
        sentences.append(f"and {left_out} further reason(s)")
    return Receipt(verdict.accepted, verdict.rejected.total(), "; ".join(sentences))
