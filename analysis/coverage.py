"""How much of each step the stored windows cover: what a rate has to be divided by.

A window belongs to the minute that holds its middle, however long it is; the newest step is still running.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis.expert_load import TimeArray
from moescope.analysis.span import Span
from moescope.analysis.store import Store, column_as_array
from moescope.schemas.records import FloatArray

_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class Coverage:
    """Seconds that the windows of each step cover, by the start of the step (Unix milliseconds)."""

    span: Span
    seconds_from_ms: Mapping[int, float]

    def seconds_of(self, times: TimeArray) -> FloatArray:
        """Seconds ``[steps]``; of a step without any known window, the part that lies in the span."""
        starts = times.astype("datetime64[ms]").astype(np.int64)
        inside = self.span.seconds_of_steps(times)
        known = [self.seconds_from_ms.get(start, 0.0) for start in starts.tolist()]
        return np.where(np.array(known) > 0, known, inside)


def read_coverage(store: Store, span: Span) -> Coverage:
    """Read from when to when the processes of a deployment reported in each step.

    Raises:
        StoreError: the store cannot answer.
    """
    table = store.query("coverage", step_seconds=span.step_seconds, **span.params())
    times, covered = (column_as_array(table, name).tolist() for name in ("time_ms", "covered_ms"))
    return Coverage(span, {at: ms / _MS for at, ms in zip(times, covered, strict=True)})
