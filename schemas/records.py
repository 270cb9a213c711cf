"""Records that cross rooms: frozen, with the unit in the registry row that each one carries.

A *window* is what a reporter closes: everything counted between two instants. Windows of one process are
contiguous. Once a window was sent it is never changed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from moescope.schemas.errors import ShapeError
from moescope.schemas.metrics import Metric

IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]
AttributeValue: TypeAlias = str | int | bool
Attributes: TypeAlias = Mapping[str, AttributeValue]


@dataclass(frozen=True, slots=True)
class IndexedCounts:
    """Counts by index (expert, peer rank or layer), one row per layer.

    Attributes:
        metric: an index-encoded row of the registry; its unit is the unit of the counts.
        layers: int64 ``[rows]``, the model's layer index of each row, strictly increasing. Empty where the
            metric has no layer; then ``counts_per_row_index`` has one row.
        counts_per_row_index: int64 ``[rows, indices]``, not negative, owned by the record.
        attributes: those that all rows share, the layer left out.
    """

    metric: Metric
    layers: IntArray
    counts_per_row_index: IntArray
    attributes: Attributes = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the shapes; a hook that breaks them must fail here and not in a store."""
        counts = self.counts_per_row_index
        if counts.ndim != 2:
            raise ShapeError(f"{self.metric.name}: counts have {counts.ndim} axes, expected [rows, indices]")
        rows = len(self.layers) or 1
        if len(counts) != rows:
            raise ShapeError(f"{self.metric.name}: {len(counts)} rows of counts for {rows} layers")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number: the change of a counter in the window, or the state of a gauge or up-down counter."""

    metric: Metric
    value: int | float
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Distribution:
    """A plain histogram of the window, with the bounds of its registry row.

    ``bucket_counts`` is int64 ``[len(metric.bounds) + 1]``; ``sum`` is in the metric's unit.
    """

    metric: Metric
    bucket_counts: IntArray
    sum: float
    attributes: Attributes = field(default_factory=dict)


Record: TypeAlias = IndexedCounts | Measurement | Distribution


@dataclass(frozen=True, slots=True)
class Window:
    """What was counted in ``[start_ns, end_ns)``, nanoseconds since the Unix epoch."""

    start_ns: int
    end_ns: int
    records: tuple[Record, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """How an attempt to hand over the frozen window ended.

    ``reason`` is a short word for a counter, empty when delivered; ``retry_after_seconds`` is what the
    receiver asked for, if it asked.
    """

    delivered: bool
    reason: str = ""
    retry_after_seconds: float | None = None
