"""What an engine calls. Off is a :class:`NullRecorder`: one empty call a layer.

A hook tells the recorder what the token rows of a step are (:meth:`Recorder.begin_step`), then hands it the
ids that the router selected (:meth:`Recorder.record_topk`). All other metrics go through the four verbs of
:class:`Meter`. Everything else happens on the reporter's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from moescope.collector.expert_load import Segment
from moescope.collector.tally import NO_ATTRIBUTES
from moescope.schemas.attributes import Phase
from moescope.schemas.metrics import Metric
from moescope.schemas.records import Attributes, IntArray
from moescope.schemas.topology import Placement


class Meter(Protocol):
    """What every process can report: rows of the registry, by the verb that fits their kind."""

    def add(self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """Add to a counter."""

    def set_state(self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """Say what an up-down counter or a gauge is now."""

    def forget_state(self, metric: Metric, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """Report a state no longer: nobody knows it any more. Nothing where it was never said."""

    def observe(
        self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES, *, times: int = 1
    ) -> None:
        """Add a value, or the same value several times, to a distribution, in the metric's unit."""

    def observe_many(
        self, metric: Metric, values: Iterable[float], attributes: Attributes = NO_ATTRIBUTES
    ) -> None:
        """Add several values to a distribution."""

    def add_distribution(
        self, metric: Metric, bucket_counts: IntArray, total: float, attributes: Attributes = NO_ATTRIBUTES
    ) -> None:
        """Add a distribution that somebody else counted, in the metric's buckets."""

    def add_indexed(
        self,
        metric: Metric,
        counts_per_row_index: Any,
        attributes: Attributes = NO_ATTRIBUTES,
        layers: IntArray | None = None,
    ) -> None:
        """Add whole numbers by expert, peer rank or layer; copied."""

    def poll(self, look: Callable[[], None]) -> None:
        """Have ``look`` called on the reporter's thread before each window is closed, to set states."""

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Close the window and wait until everything so far is acknowledged; False when time ran out."""

    def close(self, timeout_seconds: float | None = None) -> bool:
        """Flush and stop; False when the last window was not acknowledged in time. Safe to call twice."""


class Recorder(Meter, Protocol):
    """What hooks call on the engine's own thread."""

    def begin_step(self, *segments: Segment) -> None:
        """Say what the token rows of the next forward pass are, in batch order: ``(Row.PREFILL, 13), …``."""

    def record_topk(self, layer: int, topk_ids: Any) -> None:
        """Count one layer's choice: logical ids ``[tokens, top_k]``; ``layer`` is the model's layer index."""

    def add_counts(self, phase: Phase, tokens: int, tokens_per_layer_expert: IntArray) -> None:
        """Add counts that the engine made: int64 ``[num_moe_layers, num_experts]`` for ``tokens`` rows."""

    def set_placement(self, placement: Placement) -> None:
        """Say where the copies of each expert are now."""


class NullRecorder:
    """Telemetry switched off: every method is one empty call."""

    def begin_step(self, *segments: Segment) -> None:
        """Do nothing."""

    def record_topk(self, layer: int, topk_ids: Any) -> None:
        """Do nothing."""

    def add_counts(self, phase: Phase, tokens: int, tokens_per_layer_expert: IntArray) -> None:
        """Do nothing."""

    def set_placement(self, placement: Placement) -> None:
        """Do nothing."""

    def add(self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """Do nothing."""

    def set_state(self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """Do nothing."""

    def forget_state(self, metric: Metric, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """Do nothing."""

    def observe(
        self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES, *, times: int = 1
    ) -> None:
        """Do nothing."""

    def observe_many(
        self, metric: Metric, values: Iterable[float], attributes: Attributes = NO_ATTRIBUTES
    ) -> None:
        """Do nothing."""

    def add_distribution(
        self, metric: Metric, bucket_counts: IntArray, total: float, attributes: Attributes = NO_ATTRIBUTES
    ) -> None:
        """Do nothing."""

    def add_indexed(
        self,
        metric: Metric,
        counts_per_row_index: Any,
        attributes: Attributes = NO_ATTRIBUTES,
        layers: IntArray | None = None,
    ) -> None:
        """Do nothing."""

    def poll(self, look: Callable[[], None]) -> None:
        """Do nothing."""

    def flush(self, timeout_seconds: float | None = None) -> bool:  # noqa: ARG002 - the protocol's signature
        """Have nothing to flush."""
        return True

    def close(self, timeout_seconds: float | None = None) -> bool:  # noqa: ARG002 - the protocol's signature
        """Have nothing to close."""
        return True
