"""Telemetry of one process switched on: its tally, its reporter, and its end."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from moescope.collector.process_end import call_at_process_end, forget_at_process_end
from moescope.collector.reporter import Exporter, Reporter, WindowSource
from moescope.collector.tally import NO_ATTRIBUTES, StateKey, Tally
from moescope.schemas.identity import Identity
from moescope.schemas.metrics import Metric
from moescope.schemas.records import Attributes, IntArray, Record
from moescope.schemas.settings import Settings

logger = logging.getLogger("moescope")


class ProcessRecorder:
    """A :class:`~moescope.collector.recorder.Meter` that reports.

    Args:
        identity: who reports.
        make_exporter: called with the identity; again in a forked child, which is another process.
        settings: interval and time-outs.
        clock_ns: wall clock, nanoseconds since the Unix epoch.
    """

    def __init__(
        self,
        identity: Identity,
        make_exporter: Callable[[Any], Exporter],
        settings: Settings,
        *,
        sources: Iterable[WindowSource] = (),
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.identity = identity
        self._clock_ns = clock_ns
        self._settings = settings
        self._make_exporter = make_exporter
        self._tally = Tally()
        self._windows = _AllSources([*sources], self._tally)
        self._is_closed = False
        self._must_restart = False
        self._open()
        call_at_process_end(self)
        _reopen_in_forked_children(self)

    def start(self) -> None:
        """Start reporting. Not before the engine has captured its graphs."""
        self._reporter.start()

    def add(self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """See :meth:`moescope.collector.tally.Tally.add`."""
        self._here().add(metric, value, attributes)

    def set_state(self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """See :meth:`moescope.collector.tally.Tally.set_state`."""
        self._here().set_state(metric, value, attributes)

    def forget_state(self, metric: Metric, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """See :meth:`moescope.collector.tally.Tally.forget_state`."""
        self._here().forget_state(metric, attributes)

    def observe(
        self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES, *, times: int = 1
    ) -> None:
        """See :meth:`moescope.collector.tally.Tally.observe`."""
        self._here().observe(metric, value, attributes, times=times)

    def observe_many(
        self, metric: Metric, values: Iterable[float], attributes: Attributes = NO_ATTRIBUTES
    ) -> None:
        """See :meth:`moescope.collector.tally.Tally.observe_many`."""
        self._here().observe_many(metric, values, attributes)

    def add_distribution(
        self, metric: Metric, bucket_counts: IntArray, total: float, attributes: Attributes = NO_ATTRIBUTES
    ) -> None:
        """See :meth:`moescope.collector.tally.Tally.add_distribution`."""
        self._here().add_distribution(metric, bucket_counts, total, attributes)

    def add_indexed(
        self,
        metric: Metric,
        counts_per_row_index: Any,
        attributes: Attributes = NO_ATTRIBUTES,
        layers: IntArray | None = None,
    ) -> None:
        """See :meth:`moescope.collector.tally.Tally.add_indexed`."""
        self._here().add_indexed(metric, counts_per_row_index, attributes, layers)

    def poll(self, look: Callable[[], None]) -> None:
        """Have ``look`` called on the reporter's thread before each window is closed.

        Where it fails, the states that it had set are forgotten, the other numbers go on, and it is tried
        again before the next window.
        """
        self._windows.looks[look] = set()

    def add_source(self, source: WindowSource) -> None:
        """Have one more source asked for its records whenever a window is closed."""
        self._windows.sources.append(source)

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """See :meth:`moescope.collector.recorder.Meter.flush`."""
        if timeout_seconds is None:
            timeout_seconds = self._settings.flush_timeout_seconds
        return self._reporter.flush(timeout_seconds)

    def close(self, timeout_seconds: float | None = None) -> bool:
        """See :meth:`moescope.collector.recorder.Meter.close`; False if the last window is lost."""
        if self._is_closed:
            return True
        self._is_closed = True
        forget_at_process_end(self)
        if self._must_restart:  # a forked child that counted nothing has nothing to say
            return True
        if timeout_seconds is None:
            timeout_seconds = self._settings.flush_timeout_seconds
        return self._reporter.close(timeout_seconds)

    def _here(self) -> Tally:
        if self._must_restart:
            self._restart()
        return self._tally

    def _open(self) -> None:
        self._reporter = Reporter(
            self._windows,
            self._make_exporter(self.identity),
            interval_seconds=self._settings.interval_seconds,
            snapshot_every_windows=self._settings.snapshot_every_windows,
            clock_ns=self._clock_ns,
        )

    def _reopen_in_child(self) -> None:
        # The parent reports what was counted before the fork; the child counts on from here, as itself, and
        # only reports once it counts: most forked children never do.
        was_started = self._reporter.is_started
        self.identity = self.identity.as_new_instance()
        self._windows.reset()
        self._open()
        self._must_restart = was_started and not self._is_closed

    def _restart(self) -> None:
        """Report from a forked child after all: it has begun to count."""
        self._must_restart = False
        call_at_process_end(self)
        self._reporter.start()


class _AllSources:
    """Everything that one process has to say, as one source."""

    def __init__(self, sources: list[WindowSource], tally: Tally) -> None:
        self.sources = sources
        self.looks: dict[Callable[[], None], set[StateKey]] = {}
        self._failing: set[Callable[[], None]] = set()
        self._tally = tally

    def reset(self) -> None:
        """See :meth:`WindowSource.reset`."""
        for source in (*self.sources, self._tally):
            source.reset()

    def close_window(self, *, snapshot: bool) -> tuple[Record, ...]:
        """See :meth:`WindowSource.close_window`.

        The tally comes last: what it hands over exists nowhere else, and nothing may fail after it.
        """
        for look, states in list(self.looks.items()):
            self._look(look, states)
        records = [record for source in self.sources for record in source.close_window(snapshot=snapshot)]
        return (*records, *self._tally.close_window(snapshot=snapshot))

    def _look(self, look: Callable[[], None], states: set[StateKey]) -> None:
        try:
            with self._tally.owning_states(states):
                look()
        except Exception:
            if look not in self._failing:
                logger.exception("moescope: one reading failed and is left out until it works again")
            self._failing.add(look)
        else:
            self._failing.discard(look)


def _reopen_in_forked_children(recorder: ProcessRecorder) -> None:
    alive = weakref.ref(recorder)

    def reopen() -> None:
        child = alive()
        if child is not None:
            child._reopen_in_child()  # noqa: SLF001 - same module: the fork hook is part of the class

    os.register_at_fork(after_in_child=reopen)
