"""Durations of forward passes, and of what happens in a random share of them layer by layer.

Every pass is timed as a whole: two marks. Which passes are looked into is drawn at random for each, never at
a fixed stride, which would see one kind of pass of an alternating workload only. All other passes carry no
trace of it: seams are put in for a pass and taken out after it.
"""

from __future__ import annotations

import functools
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from moescope.collector.device_clock import Clock
from moescope.collector.forward_pass import PHASE_ATTRIBUTES, ForwardPass
from moescope.collector.recorder import Meter
from moescope.schemas import metrics
from moescope.schemas.attributes import LAYER, PHASE, STAGE, DispatchStage
from moescope.schemas.records import AttributeValue

logger = logging.getLogger("moescope")

# Passes whose end the device has not reached yet; beyond it the oldest is given up.
_MAX_PENDING: Final = 8
_NS: Final = 1_000_000_000

_Timed: TypeAlias = tuple[DispatchStage | None, int, Any, Any]
"""A stage, or None for the experts; the model's layer; start and end."""


@dataclass(frozen=True, slots=True)
class Seam:
    """One method of one layer that is timed.

    Attributes:
        target: the object whose method is wrapped, on the object itself.
        method: its name.
        layer: the model's layer index.
        stage: which exchange it is; None for the experts.
    """

    target: Any
    method: str
    layer: int
    stage: DispatchStage | None = None


@dataclass(slots=True)
class _Pending:
    what: ForwardPass
    start: Any
    end: Any
    timed: list[_Timed] | None


class _Wrapped:
    """A seam's timed version, put on the object for a pass."""

    def __init__(self, seam: Seam, timed_version: Callable[..., Any]) -> None:
        self._own = vars(seam.target)
        self._method = seam.method
        self._before = self._own.get(seam.method)
        self._timed_version = timed_version

    def put_in(self) -> None:
        self._own[self._method] = self._timed_version

    def take_out(self) -> None:
        if self._before is None:
            self._own.pop(self._method, None)
        else:
            self._own[self._method] = self._before


class PassTiming:
    """Times passes and reports to a meter. One thread.

    Args:
        meter: where the durations go.
        clock: of the device that computes the passes.
        num_layers: the model's layers, dense ones included.
        sample: share of the passes that are looked into.
        by_layer: whether dispatch and combine name their layer.
        draw: a number in ``[0, 1)`` per pass.
    """

    def __init__(
        self,
        meter: Meter,
        clock: Clock,
        num_layers: int,
        *,
        sample: float,
        by_layer: bool = False,
        draw: Callable[[], float] | None = None,
    ) -> None:
        self._meter = meter
        self._clock = clock
        self._num_layers = num_layers
        self._sample = sample
        self._by_layer = by_layer
        self._draw = draw or random.Random().random  # noqa: S311 - no secret
        self._seams: list[_Wrapped] = []
        self._pending: deque[_Pending] = deque()
        self._timed: list[_Timed] | None = None
        self._has_warned = False

    def watch(self, seams: Sequence[Seam]) -> None:
        """Look into these methods, in passes that are drawn."""
        self._seams = [_Wrapped(seam, self._timed_version_of(seam)) for seam in seams]

    def begin(self) -> Any:
        """Start the time of a pass, before it is known what it computes."""
        return self._clock.mark()

    def look_into(self) -> None:
        """Draw whether the pass under way is looked into. It is a real one, not warm-up."""
        self._take_out()
        if self._seams and self._sample > 0 and self._draw() < self._sample:
            for wrapped in self._seams:
                wrapped.put_in()
            self._timed = []

    def end(self, start: Any, what: ForwardPass) -> None:
        """End the time of a pass; nothing is reported of one without load."""
        timed = self._take_out()
        if what.load_rows:
            self._pending.append(_Pending(what, start, self._clock.mark(), timed))
        if len(self._pending) > _MAX_PENDING:
            self._pending.popleft()
        self.report()

    def stop(self) -> None:
        """Leave nothing on the engine."""
        self._take_out()
        self._seams = []

    def report(self) -> None:
        """Report the passes that the device has finished. Never waits.

        Each pass does it for those before it. Whoever ends the engine calls it once more, when the device has
        come to rest: nothing follows that would report the last passes.
        """
        while self._pending and self._clock.has_passed(self._pending[0].end):
            self._report(self._pending.popleft())

    def _take_out(self) -> list[_Timed] | None:
        timed, self._timed = self._timed, None
        if timed is not None:
            for wrapped in self._seams:
                wrapped.take_out()
        return timed

    def _timed_version_of(self, seam: Seam) -> Callable[..., Any]:
        original = getattr(seam.target, seam.method)
        mark = self._clock.mark

        @functools.wraps(original)
        def timed_version(*args: Any, **kwargs: Any) -> Any:
            start = mark()
            result = original(*args, **kwargs)
            if self._timed is not None:
                self._timed.append((seam.stage, seam.layer, start, mark()))
            return result

        return timed_version

    def _report(self, done: _Pending) -> None:
        attributes = PHASE_ATTRIBUTES[done.what.phase]
        seconds = self._clock.ns_between(done.start, done.end) / _NS
        self._meter.observe(metrics.STEP_DURATION, seconds, attributes)
        self._meter.observe(metrics.STEP_TOKENS, done.what.load_rows, attributes)
        if done.timed:
            self._report_layers(done, done.timed)
        elif done.timed is not None:
            self._warn_about_replay()

    def _report_layers(self, done: _Pending, timed: list[_Timed]) -> None:
        experts_ns = np.zeros(self._num_layers, dtype=np.int64)
        for stage, layer, start, end in timed:
            ns = self._clock.ns_between(start, end)
            if stage is None:
                experts_ns[layer] += ns
                continue
            attributes: dict[str, AttributeValue] = {STAGE: stage.value, PHASE: done.what.phase.value}
            if self._by_layer:
                attributes[LAYER] = layer
            self._meter.observe(metrics.DISPATCH_DURATION, ns / _NS, attributes)
        # Stands for all passes, of which this share is looked into.
        scaled_up = np.rint(experts_ns / self._sample).astype(np.int64)
        for phase, part in done.what.share(scaled_up).items():
            self._meter.add_indexed(metrics.EXPERT_GROUP_DURATION, part, PHASE_ATTRIBUTES[phase])

    def _warn_about_replay(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.info(
                "moescope: a pass went by no seam between its layers: they are replayed from a graph. Of "
                "such passes the times of dispatch, experts and combine are not reported"
            )
