"""What is now, and what lies before it: how findings tell a change inside a window."""

from __future__ import annotations

from typing import Final

import numpy as np

from moescope.analysis.expert_load import TimeArray
from moescope.analysis.imbalance import BoolArray
from moescope.analysis.span import Span

_MS: Final = 1000
_RECENT_SECONDS: Final = 300.0


def recent_seconds(window_seconds: float) -> float:
    """How long "now" is: the newest five minutes, or a third of a shorter window."""
    return min(_RECENT_SECONDS, window_seconds / 3)


def is_recent(times: TimeArray, span: Span, seconds: float) -> BoolArray:
    """Which steps ``[steps]`` begin in the newest so many seconds of a span; the others lie before."""
    starts_ms = times.astype("datetime64[ms]").astype(np.int64)
    recent: BoolArray = starts_ms >= span.covered_ms - seconds * _MS
    return recent
