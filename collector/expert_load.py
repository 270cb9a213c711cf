"""Counters of (token, expert) assignments, and what they mean.

One int64 array ``[num_moe_layers, rows, num_experts + 2]``. Its second axis says what a token row was
computed for (:class:`Row`): the two phases are the load, the other rows are counted apart as excluded. Its
last axis has a guard column at either end: column 0 takes id −1 (routers mark padding so), column
``num_experts + 1`` takes every id beyond the model. So no id can write outside its own row.

Counts only ever grow. A reader copies them and subtracts what it read before, so nothing is reset under a
running forward pass, and the addresses stay fixed as CUDA graphs need them to.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from moescope.schemas.errors import ShapeError
from moescope.schemas.records import IntArray


class Row(IntEnum):
    """What a token row is computed for: the second axis of the counters."""

    PREFILL = 0
    DECODE = 1
    PADDING = 2
    WARMUP = 3
    DUMMY = 4


NUM_ROWS: Final = len(Row)
GUARDS: Final = 2

Segment: TypeAlias = tuple[Row, int]
"""So many neighbouring token rows of one kind, in the order of the batch."""


class ExpertCounter(Protocol):
    """Counts on one device. One thread adds; another may read at any time."""

    @property
    def num_moe_layers(self) -> int:
        """First axis of the counts."""

    @property
    def num_experts(self) -> int:
        """Logical experts; the last axis of the counts is two longer."""

    def set_layout(self, segments: Sequence[Segment]) -> None:
        """Say what the token rows of the next forward pass are; rows beyond the segments are padding."""

    def add(self, moe_layer_ordinal: int, topk_ids: Any) -> None:
        """Count one layer's choice: ids ``[tokens, top_k]`` on this counter's device, any integer dtype."""

    def read(self) -> IntArray:
        """Copy the counts to the host: int64 ``[num_moe_layers, rows, num_experts + 2]``, caller-owned."""


class NumpyExpertCounter:
    """Counts on the host. For engines that hand out numpy arrays, for simulators and for tests."""

    def __init__(self, num_moe_layers: int, num_experts: int) -> None:
        self.num_moe_layers = num_moe_layers
        self.num_experts = num_experts
        self._counts = np.zeros((num_moe_layers, NUM_ROWS, num_experts + GUARDS), dtype=np.int64)
        self._row_of_token = np.empty(0, dtype=np.int64)

    def set_layout(self, segments: Sequence[Segment]) -> None:
        """See :meth:`ExpertCounter.set_layout`."""
        rows = [row for row, _ in segments]
        self._row_of_token = np.repeat(np.asarray(rows, dtype=np.int64), [n for _, n in segments])

    def add(self, moe_layer_ordinal: int, topk_ids: Any) -> None:
        """See :meth:`ExpertCounter.add`.

        Raises:
            ShapeError: the ids do not have the axes ``[tokens, top_k]``.
        """
        ids = np.asarray(topk_ids)
        if ids.ndim != 2:
            raise ShapeError(f"topk_ids has {ids.ndim} axes, expected [tokens, top_k]")
        rows = self._rows_of(len(ids))
        columns = np.clip(ids, -1, self.num_experts).astype(np.int64) + 1
        width = self.num_experts + GUARDS
        flat = (rows[:, None] * width + columns).ravel()
        added = np.bincount(flat, minlength=NUM_ROWS * width)
        self._counts[moe_layer_ordinal] += added.reshape(NUM_ROWS, width)

    def read(self) -> IntArray:
        """See :meth:`ExpertCounter.read`."""
        return self._counts.copy()

    def _rows_of(self, num_tokens: int) -> IntArray:
        rows = np.full(num_tokens, Row.PADDING, dtype=np.int64)
        known = self._row_of_token[:num_tokens]
        rows[: len(known)] = known
        return rows
