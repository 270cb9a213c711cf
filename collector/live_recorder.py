"""Telemetry switched on: counters, their reporter, and the end of the process."""

from __future__ import annotations

import dataclasses
import os
import time
import uuid
import weakref
from collections.abc import Callable
from typing import Any

from moescope.collector.expert_load import ExpertCounter, Segment
from moescope.collector.expert_load_source import ExpertLoadSource
from moescope.collector.process_end import call_at_process_end, forget_at_process_end
from moescope.collector.reporter import Exporter, Reporter
from moescope.schemas.attributes import Phase
from moescope.schemas.identity import EngineIdentity
from moescope.schemas.records import IntArray
from moescope.schemas.settings import Settings
from moescope.schemas.topology import Placement


class LiveRecorder:
    """A :class:`~moescope.collector.recorder.Recorder` that counts and reports.

    Args:
        identity: who reports.
        counter: where the ids are counted.
        make_exporter: called with the identity; again in a forked child, which is another process.
        settings: interval and time-outs.
        placement: where the copies of each expert are; contiguous blocks if None.
        clock_ns: wall clock, nanoseconds since the Unix epoch.
    """

    def __init__(
        self,
        identity: EngineIdentity,
        counter: ExpertCounter,
        make_exporter: Callable[[EngineIdentity], Exporter],
        settings: Settings,
        placement: Placement | None = None,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._clock_ns = clock_ns
        self._settings = settings
        self._counter = counter
        self._make_exporter = make_exporter
        self._placement = placement
        self._is_closed = False
        self._must_restart = False
        self._open(identity)
        call_at_process_end(self)
        _reopen_in_forked_children(self)

    @property
    def identity(self) -> EngineIdentity:
        """Who reports."""
        return self._source.identity

    def start(self) -> None:
        """Start reporting. Not before the engine has captured its graphs."""
        self._reporter.start()

    def begin_step(self, *segments: Segment) -> None:
        """See :meth:`moescope.collector.recorder.Recorder.begin_step`."""
        if self._must_restart:
            self._restart()
        self._source.begin_step(*segments)

    def record_topk(self, layer: int, topk_ids: Any) -> None:
        """See :meth:`moescope.collector.recorder.Recorder.record_topk`."""
        self._source.record_topk(layer, topk_ids)

    def add_counts(self, phase: Phase, tokens: int, tokens_per_layer_expert: IntArray) -> None:
        """See :meth:`moescope.collector.recorder.Recorder.add_counts`."""
        if self._must_restart:
            self._restart()
        self._source.add_counts(phase, tokens, tokens_per_layer_expert)

    def set_placement(self, placement: Placement) -> None:
        """See :meth:`moescope.collector.recorder.Recorder.set_placement`."""
        self._source.set_placement(placement)
        self._placement = placement

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """See :meth:`moescope.collector.recorder.Recorder.flush`."""
        if timeout_seconds is None:
            timeout_seconds = self._settings.flush_timeout_seconds
        return self._reporter.flush(timeout_seconds)

    def close(self, timeout_seconds: float | None = None) -> bool:
        """See :meth:`moescope.collector.recorder.Recorder.close`; False if the last window is lost."""
        if self._is_closed:
            return True
        self._is_closed = True
        forget_at_process_end(self)
        if self._must_restart:  # a forked child that counted nothing has nothing to say
            return True
        if timeout_seconds is None:
            timeout_seconds = self._settings.flush_timeout_seconds
        return self._reporter.close(timeout_seconds)

    def _open(self, identity: EngineIdentity) -> None:
        self._source = ExpertLoadSource(identity, self._counter, self._placement)
        self._reporter = Reporter(
            self._source,
            self._make_exporter(identity),
            interval_seconds=self._settings.interval_seconds,
            snapshot_every_windows=self._settings.snapshot_every_windows,
            clock_ns=self._clock_ns,
        )

    def _reopen_in_child(self) -> None:
        # The parent reports what was counted before the fork; the child counts on from here, as itself, and
        # only reports once it counts: most forked children never do.
        was_started = self._reporter.is_started
        self._open(dataclasses.replace(self.identity, instance=str(uuid.uuid4())))
        self._must_restart = was_started and not self._is_closed

    def _restart(self) -> None:
        self._must_restart = False
        call_at_process_end(self)
        self._reporter.start()


def _reopen_in_forked_children(recorder: LiveRecorder) -> None:
    alive = weakref.ref(recorder)

    def reopen() -> None:
        child = alive()
        if child is not None:
            child._reopen_in_child()  # noqa: SLF001 - same module: the fork hook is part of the class

    os.register_at_fork(after_in_child=reopen)
