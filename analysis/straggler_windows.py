"""The windows in which stragglers are looked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis.frozen import locked_int64
from moescope.analysis.span import Span
from moescope.schemas.records import FloatArray, IntArray

_MS: Final = 1000
_LENGTHS_SECONDS: Final = (60, 300, 600, 1_800, 3_600, 10_800)
_MOST_WINDOWS: Final = 60
_LEAST_COVERED: Final = 0.25
"""A newest window of which less is there than this part is left out."""


@dataclass(frozen=True, slots=True)
class StragglerWindows:
    """Windows side by side.

    Attributes:
        start_ms, end_ms: Unix milliseconds, whole windows, end excluded.
        seconds: length of each.
        covered_ms: until when there is data.
    """

    start_ms: int
    end_ms: int
    seconds: int
    covered_ms: int

    @classmethod
    def of(cls, span: Span) -> StragglerWindows:
        """Windows of a minute over a span; longer ones where those would be too many."""
        length_ms = span.end_ms - span.start_ms
        fits = (n for n in _LENGTHS_SECONDS if length_ms <= n * _MS * _MOST_WINDOWS)
        seconds = next(fits, _LENGTHS_SECONDS[-1])
        step_ms = seconds * _MS
        # Half a window tells as much as a whole one, in ratios; the first seconds of one tell nothing.
        last_ms = span.covered_ms + round(step_ms * (1 - _LEAST_COVERED))
        end_ms = min(-(-span.end_ms // step_ms), last_ms // step_ms) * step_ms
        start_ms = span.start_ms // step_ms * step_ms
        return cls(start_ms, max(end_ms, start_ms), seconds, span.covered_ms)

    @property
    def starts_ms(self) -> IntArray:
        """Where each window starts, Unix milliseconds: int64 ``[windows]``."""
        return locked_int64(np.arange(self.start_ms, self.end_ms, self.seconds * _MS))

    def covered_seconds(self) -> FloatArray:
        """How much of each window the data covers: float64 ``[windows]``."""
        ends = np.minimum(self.starts_ms + self.seconds * _MS, self.covered_ms)
        covered: FloatArray = np.maximum(ends - self.starts_ms, _MS) / _MS
        return covered
