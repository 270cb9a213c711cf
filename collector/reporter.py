"""The one thread that reports: close a window, hand it over, measure itself, never raise into serving.

While a window waits for its acknowledgement no other is closed; the counters simply go on. So an outage
costs one frozen window and loses nothing, however long it lasts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np

from moescope.schemas import metrics
from moescope.schemas.attributes import REASON
from moescope.schemas.records import Attempt, Distribution, Measurement, Record, Window

logger = logging.getLogger("moescope")

_FIRST_RETRY_SECONDS: Final = 0.5
_NS: Final = 1_000_000_000


class Exporter(Protocol):
    """Where windows go. ``export`` is only called when nothing is pending."""

    @property
    def pending_bytes(self) -> int:
        """Size of the frozen window that waits for its acknowledgement; 0 when there is none."""

    def export(self, window: Window, timeout_seconds: float | None = None) -> Attempt:
        """Freeze the window and try to hand it over, for so long at most."""

    def retry(self, timeout_seconds: float | None = None) -> Attempt:
        """Try again with the same bytes, for so long at most."""

    def close(self) -> None:
        """Let go of connections."""


class WindowSource(Protocol):
    """What can be asked for everything since it was last asked."""

    def close_window(self, *, snapshot: bool) -> tuple[Record, ...]:
        """Return the records since the last call; with the states that change rarely, if ``snapshot``."""

    def reset(self) -> None:
        """Leave what was counted so far to the parent of this forked process."""


class Reporter:
    """Close windows of ``source`` on whole multiples of the interval and hand them to ``exporter``.

    Args:
        interval_seconds: time between two windows.
        snapshot_every_windows: every n-th window carries the states that change rarely.
        clock_ns: wall clock, nanoseconds since the Unix epoch.
    """

    def __init__(
        self,
        source: WindowSource,
        exporter: Exporter,
        *,
        interval_seconds: float,
        snapshot_every_windows: int = 6,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._source = source
        self._exporter = exporter
        self._interval_seconds = interval_seconds
        self._snapshot_every = snapshot_every_windows
        self._clock_ns = clock_ns
        self._window_start_ns = clock_ns()
        self._windows = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._durations_seconds: list[float] = []
        self._seconds_on_window = 0.0
        self._most_pending_bytes = 0
        self._failures: Counter[str] = Counter()
        self._retry_seconds = _FIRST_RETRY_SECONDS
        self._is_away = False

    @property
    def is_running(self) -> bool:
        """Whether the thread is there."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_started(self) -> bool:
        """Whether :meth:`start` was called, here or in the parent of a fork."""
        return self._thread is not None

    def start(self) -> None:
        """Start the thread, if it is not there. Not before an engine has captured its graphs."""
        if not self.is_running:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="moescope-reporter", daemon=True)
            self._thread.start()

    def flush(self, timeout_seconds: float) -> bool:
        """Hand over everything counted so far; False when it was not acknowledged in time."""
        deadline = time.monotonic() + timeout_seconds
        if not self._lock.acquire(timeout=max(timeout_seconds, 0)):
            return False
        try:
            return self._drain(deadline) and (self._close_and_export(deadline) or self._drain(deadline))
        finally:
            self._lock.release()

    def close(self, timeout_seconds: float) -> bool:
        """Flush, stop the thread and let go of the exporter."""
        self._stop.set()
        is_flushed = self.flush(timeout_seconds)
        if not is_flushed:
            logger.warning(
                "moescope: the last window was not acknowledged within %g s and is lost with this process",
                timeout_seconds,
            )
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=1)
        self._exporter.close()
        return is_flushed

    def _run(self) -> None:
        while not self._stop.wait(self._seconds_to_wait()):
            try:
                with self._lock:
                    if self._stop.is_set():
                        return
                    if self._exporter.pending_bytes:
                        self._attempt(self._exporter.retry)
                    else:
                        self._close_and_export()
            except Exception:
                self._failures["error"] += 1
                self._log_once("moescope: telemetry failed; serving goes on", with_traceback=True)

    def _seconds_to_wait(self) -> float:
        if self._exporter.pending_bytes:
            return self._retry_seconds
        now_seconds = self._clock_ns() / _NS
        return self._interval_seconds - now_seconds % self._interval_seconds

    def _drain(self, deadline: float) -> bool:
        """Retry the frozen window until it is gone or time is up."""
        while self._exporter.pending_bytes:
            if self._attempt(lambda: self._exporter.retry(_seconds_until(deadline))):
                break
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            time.sleep(min(self._retry_seconds, remaining))
        return True

    def _close_and_export(self, deadline: float | None = None) -> bool:
        started = time.perf_counter()
        snapshot = self._windows % self._snapshot_every == 0
        start_ns, end_ns = self._window_start_ns, max(self._clock_ns(), self._window_start_ns + 1)
        records = (*self._source.close_window(snapshot=snapshot), *self._self_records())
        # From here on the counts exist only in this window: the exporter freezes before it can fail.
        window = Window(start_ns, end_ns, records)
        self._window_start_ns = end_ns
        self._windows += 1
        self._seconds_on_window = time.perf_counter() - started
        return self._attempt(lambda: self._exporter.export(window, _seconds_until(deadline)))

    def _attempt(self, hand_over: Callable[[], Attempt]) -> bool:
        """Try, and remember what it took: one duration per window, its failed attempts included."""
        started = time.perf_counter()
        try:
            attempt = hand_over()
        finally:
            self._seconds_on_window += time.perf_counter() - started
            self._most_pending_bytes = max(self._most_pending_bytes, self._exporter.pending_bytes)
        if attempt.delivered:
            self._durations_seconds.append(self._seconds_on_window)
            if self._is_away:
                logger.info("moescope: the endpoint answers again; nothing was lost")
            self._is_away = False
            self._retry_seconds = _FIRST_RETRY_SECONDS
            return True
        self._failures[attempt.reason] += 1
        longest = self._interval_seconds
        self._retry_seconds = min(attempt.retry_after_seconds or self._retry_seconds * 2, longest)
        self._log_once(
            f"moescope: window kept, endpoint says {attempt.reason}; trying again until it is taken"
        )
        return False

    def _log_once(self, message: str, *, with_traceback: bool = False) -> None:
        if not self._is_away:
            logger.warning(message, exc_info=with_traceback)
        self._is_away = True

    def _self_records(self) -> list[Record]:
        """What reporting cost since the last window. Nothing of it is lost: what is read here is sent."""
        durations, self._durations_seconds = self._durations_seconds, []
        failures, self._failures = self._failures, Counter()
        most_pending_bytes, self._most_pending_bytes = self._most_pending_bytes, 0
        bounds = metrics.TELEMETRY_EXPORT_DURATION.bounds
        buckets = np.bincount(np.searchsorted(bounds, durations), minlength=len(bounds) + 1)
        return [
            Distribution(metrics.TELEMETRY_EXPORT_DURATION, buckets.astype(np.int64), sum(durations)),
            Measurement(metrics.TELEMETRY_QUEUE_SIZE, most_pending_bytes),
            *(
                Measurement(metrics.TELEMETRY_EXPORT_FAILURES, count, {REASON: reason})
                for reason, count in sorted(failures.items())
            ),
        ]


def _seconds_until(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - time.monotonic(), 0.0)
