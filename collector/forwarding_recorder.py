"""A recorder that passes everything on; for wrappers that add to some of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from moescope.collector.expert_load import Segment
from moescope.collector.recorder import Recorder
from moescope.collector.tally import NO_ATTRIBUTES
from moescope.schemas.attributes import Phase
from moescope.schemas.metrics import Metric
from moescope.schemas.records import Attributes, IntArray
from moescope.schemas.topology import Placement


class ForwardingRecorder:
    """Passes everything on to ``recorder``; see :class:`~moescope.collector.recorder.Recorder`."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def begin_step(self, *segments: Segment) -> None:
        """Pass it on."""
        self._recorder.begin_step(*segments)

    def record_topk(self, layer: int, topk_ids: Any) -> None:
        """Pass it on."""
        self._recorder.record_topk(layer, topk_ids)

    def add_counts(self, phase: Phase, tokens: int, tokens_per_layer_expert: IntArray) -> None:
        """Pass it on."""
        self._recorder.add_counts(phase, tokens, tokens_per_layer_expert)

    def set_placement(self, placement: Placement) -> None:
        """Pass it on."""
        self._recorder.set_placement(placement)

    def add(self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """Pass it on."""
        self._recorder.add(metric, value, attributes)

    def set_state(self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """Pass it on."""
        self._recorder.set_state(metric, value, attributes)

    def forget_state(self, metric: Metric, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """Pass it on."""
        self._recorder.forget_state(metric, attributes)

    def observe(
        self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES, *, times: int = 1
    ) -> None:
        """Pass it on."""
        self._recorder.observe(metric, value, attributes, times=times)

    def observe_many(
        self, metric: Metric, values: Iterable[float], attributes: Attributes = NO_ATTRIBUTES
    ) -> None:
        """Pass it on."""
        self._recorder.observe_many(metric, values, attributes)

    def add_distribution(
        self, metric: Metric, bucket_counts: IntArray, total: float, attributes: Attributes = NO_ATTRIBUTES
    ) -> None:
        """Pass it on."""
        self._recorder.add_distribution(metric, bucket_counts, total, attributes)

    def add_indexed(
        self,
        metric: Metric,
        counts_per_row_index: Any,
        attributes: Attributes = NO_ATTRIBUTES,
        layers: IntArray | None = None,
    ) -> None:
        """Pass it on."""
        self._recorder.add_indexed(metric, counts_per_row_index, attributes, layers)

    def poll(self, look: Callable[[], None]) -> None:
        """Pass it on."""
        self._recorder.poll(look)

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Pass it on."""
        return self._recorder.flush(timeout_seconds)

    def close(self, timeout_seconds: float | None = None) -> bool:
        """Pass it on."""
        return self._recorder.close(timeout_seconds)
