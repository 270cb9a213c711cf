"""Arrays of whole numbers out of files that may hold anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from moescope.schemas.errors import RecordingError


def whole_numbers(path: Path, name: str, value: Any, low: int = 0) -> npt.NDArray[Any]:
    """The array, whatever its integer type; nothing in it is below ``low``.

    Raises:
        RecordingError: it is no array of whole numbers.
    """
    try:
        numbers = np.asarray(value)
    except ValueError:
        raise RecordingError(f"{path}: the rows of {name} have several lengths") from None
    if numbers.dtype.kind not in "iu":
        raise RecordingError(f"{path}: {name} holds {numbers.dtype.name}, expected whole numbers")
    if numbers.min(initial=low) < low:
        raise RecordingError(f"{path}: {name} holds {int(numbers.min())}, expected {low} or more")
    return numbers
