"""What an engine calls. Off is a :class:`NullRecorder`: one empty call a layer.

A hook tells the recorder what the token rows of a step are (:meth:`Recorder.begin_step`), then hands it the
ids that the router selected (:meth:`Recorder.record_topk`). Everything else happens on the reporter's thread.
"""

from __future__ import annotations

from typing import Any, Protocol

from moescope.collector.expert_load import Segment
from moescope.schemas.attributes import Phase
from moescope.schemas.records import IntArray
from moescope.schemas.topology import Placement


class Recorder(Protocol):
    """What hooks call on the engine's own thread."""

    def begin_step(self, *segments: Segment) -> None:
        """Say what the token rows of the next forward pass are, in batch order: ``(Row.PREFILL, 13), …``."""

    def record_topk(self, layer: int, topk_ids: Any) -> None:
        """Count one layer's choice: logical ids ``[tokens, top_k]``; ``layer`` is the model's layer index."""

    def add_counts(self, phase: Phase, tokens: int, tokens_per_layer_expert: IntArray) -> None:
        """Add counts that the engine made: int64 ``[num_moe_layers, num_experts]`` for ``tokens`` rows."""

    def set_placement(self, placement: Placement) -> None:
        """Say where the copies of each expert are now."""

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Close the window and wait until everything so far is acknowledged; False when time ran out."""

    def close(self, timeout_seconds: float | None = None) -> bool:
        """Flush and stop; False when the last window was not acknowledged in time. Safe to call twice."""


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

    def flush(self, timeout_seconds: float | None = None) -> bool:  # noqa: ARG002 - the protocol's signature
        """Have nothing to flush."""
        return True

    def close(self, timeout_seconds: float | None = None) -> bool:  # noqa: ARG002 - the protocol's signature
        """Have nothing to close."""
        return True
