"""The bounded queue between the receivers and the store.

Requests that wait are stored together: one batch per free thread. A receiver gets a future and answers its
client only when that is done, so an acknowledged request is on disk. A request that comes again while its
first copy is still on its way shares the first copy's future.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from concurrent.futures import Future
from typing import Final

from moescope.schemas.errors import QueueFullError, RequestRefusedError, StoreUnavailableError
from moescope.schemas.settings import Settings
from moescope.server.landed_request import LandedRequest
from moescope.server.own_metrics import OwnMetrics
from moescope.server.store import Store

_LOG: Final = logging.getLogger(__name__)

MAX_BATCH_BYTES: Final = 96 * 2**20
"""Request bytes inserted together at most: the engine needs several times as much memory for them."""

MAX_QUEUED_BYTES: Final = 512 * 2**20


class Writer:
    """Queue and threads in front of a store.

    Args:
        store: takes the batches; shared by all threads.
        settings: ``ingest_queue_requests``, ``ingest_batch_requests`` and ``ingest_threads``.
        metrics: counts what happens.
    """

    def __init__(self, store: Store, settings: Settings, metrics: OwnMetrics) -> None:
        self._store = store
        self._settings = settings
        self._metrics = metrics
        self._queue: deque[LandedRequest] = deque()
        self._queued_bytes = 0
        self._pending: dict[bytes, Future[None]] = {}
        self._changed = threading.Condition()
        self._is_closing = False
        metrics.watch_queue(lambda: len(self._queue))
        self._threads = [
            threading.Thread(target=self._run, name=f"moescope-ingest-{number}", daemon=True)
            for number in range(settings.ingest_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, request: LandedRequest) -> Future[None]:
        """Queue a request; the future is done when it is on disk.

        Raises:
            QueueFullError: too many requests wait already.
            StoreUnavailableError: the server is shutting down.
        """
        with self._changed:
            known = self._pending.get(request.digest)
            if known is not None:
                return known
            if self._is_closing:
                raise StoreUnavailableError("the server is shutting down; send the request again later")
            self._refuse_if_full(request)
            future: Future[None] = Future()
            self._pending[request.digest] = future
            self._queue.append(request)
            self._queued_bytes += request.size_bytes
            self._changed.notify()
            return future

    def close(self) -> None:
        """Store what waits and stop."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _refuse_if_full(self, request: LandedRequest) -> None:
        waiting, limit = len(self._queue), self._settings.ingest_queue_requests
        if waiting >= limit or self._queued_bytes + request.size_bytes > MAX_QUEUED_BYTES:
            raise QueueFullError(
                f"{waiting} requests with {self._queued_bytes} bytes wait to be stored "
                f"(ingest_queue_requests={limit}); send this one again later"
            )

    def _run(self) -> None:
        while batch := self._next_batch():
            error = self._commit(batch)
            with self._changed:
                futures = {request.digest: self._pending.pop(request.digest) for request in batch}
            for digest, future in futures.items():
                if error is None or (isinstance(error, RequestRefusedError) and digest not in error.digests):
                    future.set_result(None)
                else:
                    future.set_exception(error)

    def _next_batch(self) -> list[LandedRequest]:
        """Wait for requests and take as many as go together; nothing when all is done."""
        with self._changed:
            while not self._queue and not self._is_closing:
                self._changed.wait()
            batch: list[LandedRequest] = []
            size = 0
            while self._queue and len(batch) < self._settings.ingest_batch_requests:
                if batch and size + self._queue[0].size_bytes > MAX_BATCH_BYTES:
                    break
                batch.append(self._queue.popleft())
                size += batch[-1].size_bytes
            self._queued_bytes -= size
            return batch

    def _commit(self, batch: list[LandedRequest]) -> Exception | None:
        try:
            with self._metrics.insert_seconds.time():
                self._store.commit(batch)
        except (StoreUnavailableError, RequestRefusedError) as error:
            return error
        except Exception as error:
            _LOG.exception("storing %d requests failed", len(batch))
            return StoreUnavailableError(f"storing failed: {type(error).__name__}: {error}")
        self._metrics.batch_requests.observe(len(batch))
        self._metrics.rows.inc(sum(request.rows for request in batch))
        return None
