"""Telemetry of one rank switched on: the expert load beside everything else that its process reports."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from moescope.collector.expert_load import ExpertCounter, Segment
from moescope.collector.expert_load_source import ExpertLoadSource
from moescope.collector.process_recorder import ProcessRecorder
from moescope.collector.reporter import Exporter
from moescope.schemas.attributes import Phase
from moescope.schemas.identity import EngineIdentity
from moescope.schemas.records import IntArray
from moescope.schemas.settings import Settings
from moescope.schemas.topology import Placement


class LiveRecorder(ProcessRecorder):
    """A :class:`~moescope.collector.recorder.Recorder` that counts and reports.

    Args:
        identity: which rank reports.
        counter: where the ids are counted.
        make_exporter: called with the identity; again in a forked child, which is another process.
        settings: interval and time-outs.
        placement: where the copies of each expert are; contiguous blocks if None.
        clock_ns: wall clock, nanoseconds since the Unix epoch.
    """

    identity: EngineIdentity

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
        self._source = ExpertLoadSource(
            identity, counter, placement, snapshot_every_windows=settings.snapshot_every_windows
        )
        super().__init__(identity, make_exporter, settings, sources=[self._source], clock_ns=clock_ns)

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
