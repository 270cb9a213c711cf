"""Arrays of frozen results: read-only, so that what was decided stays what it was."""

from __future__ import annotations

from typing import Any

import numpy as np

from moescope.schemas.records import FloatArray, IntArray


def lock(array: Any) -> Any:
    """Make an array read-only, as a part of a frozen result is, and return it."""
    array.flags.writeable = False
    return array


def locked_int64(array: Any) -> IntArray:
    """Return a read-only int64 copy of ``array``."""
    locked: IntArray = lock(np.array(array, dtype=np.int64))
    return locked


def locked_float64(array: Any) -> FloatArray:
    """Return a read-only float64 copy of ``array``."""
    locked: FloatArray = lock(np.array(array, dtype=np.float64))
    return locked
