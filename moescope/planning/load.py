"""What a plan is made from, wherever it was read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import Placement

_LARGEST_COUNT: Final = 2.0**53


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanLoad:
    """Load of the experts in one window or several.

    Attributes:
        tokens: float64 ``[windows, layers, experts]``, finite, not negative; the oldest window first where
            ``is_in_order``.
        layers: int64 ``[layers]``, the model's layer index of each row, rising.
        source: whose load it is and of when, for a person.
        is_in_order: whether a later window is one of later time.
        is_forecast_fair: whether the windows are equally long stretches of time, which a forecast needs.
        design_effect: float64 ``[layers]``, NaN where unknown.
        current: what the engine serves from, on these layers; None where nobody knows.
        bytes_per_expert: float64 ``[layers]``, bytes of one copy; None where nobody knows.
        nodes: nodes that the ranks live on; None where nobody knows.
        end_ms: end of the last window, Unix milliseconds; None where the source knows no time.
        notes: sentences that belong under the answer.
    """

    tokens: FloatArray
    layers: IntArray
    source: str
    is_in_order: bool = True
    is_forecast_fair: bool = False
    design_effect: FloatArray | None = None
    current: Placement | None = None
    bytes_per_expert: FloatArray | None = None
    nodes: int | None = None
    end_ms: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def experts(self) -> int:
        """Logical experts of each layer."""
        return int(self.tokens.shape[2])

    @property
    def is_counts(self) -> bool:
        """Whether the numbers are whole: only counts have a noise that can be told.

        Beyond 2^53 together a float no longer tells one from the next, and their sums leave 64 bits.
        """
        is_whole = (self.tokens == np.floor(self.tokens)).all()
        return bool(is_whole and self.tokens.sum() <= _LARGEST_COUNT)
