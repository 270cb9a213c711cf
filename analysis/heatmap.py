"""Expert load as the cells of a heatmap: values to read and the steps at which its colours change.

Load spreads over orders of magnitude, so colours follow its logarithm while the values stay what they are:
what the pointer shows is the number itself. Cells are whole numbers of 16 bits because 82,432 of them travel
to the browser at every refresh. The pointer's sentence can format a cell but not calculate with it, so
multiples of the median travel as whole percent, which says the same as two decimals.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from moescope.analysis.expert_load import ExpertLoadWindow
from moescope.analysis.frozen import lock
from moescope.analysis.hot_experts import times_median

_SECONDS_PER_MINUTE: Final = 60
PERCENT: Final = 100
"""What a cell at exactly its layer's median holds."""

_RATIO_STEPS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)

_RATE_OCTAVES: Final = 6
_TOP_QUANTILE: Final = 0.999


class CellValue(StrEnum):
    """What a cell shows; the words stand in the address and on the page."""

    TIMES_MEDIAN = "of median"
    PER_MINUTE = "per minute"


@dataclass(frozen=True, slots=True)
class HeatmapCells:
    """The cells of one window.

    Attributes:
        values: ``[layers, experts]``, the numbers to read: percent of the layer's median, or assignments a
            minute; uint16, or whole float32 when one does not fit.
        steps: values, each twice the one before, between which equal colour differences lie; what is
            below or above takes the colour of the end.
    """

    value: CellValue
    values: npt.NDArray[Any]
    steps: tuple[float, ...]


def make_cells(window: ExpertLoadWindow, value: CellValue) -> HeatmapCells:
    """Turn a window into cells: percent of the layer's median, or assignments a minute."""
    if value is CellValue.TIMES_MEDIAN:
        percent = np.round(times_median(window.tokens) * PERCENT)
        return HeatmapCells(value, _pack(percent), tuple(PERCENT * step for step in _RATIO_STEPS))
    rates = np.round(window.tokens * (_SECONDS_PER_MINUTE / max(window.seconds, 1)))
    return HeatmapCells(value, _pack(rates), _rate_steps(rates))


def _pack(whole: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    """Take 16 bits where they are enough: a clipped cell would say a wrong number."""
    is_small = whole.max(initial=0) <= np.iinfo(np.uint16).max
    packed: npt.NDArray[Any] = lock(whole.astype(np.uint16 if is_small else np.float32))
    return packed


def _rate_steps(rates: npt.NDArray[np.float64]) -> tuple[float, ...]:
    """Octaves below a round number (1, 2, 4 or 8 · 10ⁿ) that fewer than one expert in a thousand exceeds."""
    top = max(float(np.quantile(rates, _TOP_QUANTILE)) if rates.size else 0.0, 2.0**_RATE_OCTAVES)
    decade = 10.0 ** np.floor(np.log10(top))
    top = next(float(digit * decade) for digit in (1, 2, 4, 8, 10) if digit * decade >= top)
    return tuple(top / 2**octave for octave in range(_RATE_OCTAVES, -1, -1))
