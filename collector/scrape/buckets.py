"""An engine's buckets into those of the registry.

Counts and sums stay exact. Where the bounds differ, a bucket goes whole into that one of ours which holds its
upper bound, so that quantiles err towards slow and never towards fast.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from moescope.schemas.records import IntArray


def rebucket(
    upper_bounds: Sequence[float], cumulative_counts: Sequence[float], bounds: Sequence[float]
) -> IntArray:
    """Move counts into other buckets.

    Args:
        upper_bounds: the engine's ``le`` in any order, the last of them infinite.
        cumulative_counts: observations up to each of them, whole numbers.
        bounds: the registry row's, increasing.

    Returns:
        int64 ``[len(bounds) + 1]``, the last bucket open; owned by the caller. Bucket i holds what is at most
        ``bounds[i]``. Negative where the cumulative counts go down, which a page read while it was written
        can do.
    """
    order = np.argsort(np.asarray(upper_bounds, dtype=np.float64), kind="stable")
    uppers = np.asarray(upper_bounds, dtype=np.float64)[order]
    counts = np.diff(np.rint(np.asarray(cumulative_counts, dtype=np.float64)[order]), prepend=0.0)
    moved = np.zeros(len(bounds) + 1, dtype=np.int64)
    np.add.at(moved, np.searchsorted(np.asarray(bounds), uppers, side="left"), counts.astype(np.int64))
    return moved
