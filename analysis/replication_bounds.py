"""What no placement can beat, per layer. Loads are scaled so that the mean rank load is 1.

Lower bounds of max / mean under an even split over copies on distinct ranks:

1. the mean: 1, or over the ranks that have a slot where some have none;
2. the largest load per copy under the best counts (:func:`minimax_counts` is exact);
3. without spare copies: k ranks that hold the k heaviest experts hold at least as many others beside them as
   the remaining ranks have no room for; at best the lightest;
4. without spare copies: of G + 1 experts two share one of G ranks, with the lightest that must share it too.

The linear relaxation of the placement adds nothing to the first two.
"""

from __future__ import annotations

import numpy as np

from moescope.schemas.records import FloatArray, IntArray


def lower_bounds(load: FloatArray, counts: IntArray, capacity: IntArray, copies: IntArray) -> FloatArray:
    """Bound max / mean from below: float64 ``[rows]``.

    Args:
        load: float64 ``[rows, experts]``, falling along each row.
        counts: int64 ``[rows, experts]``, the minimax counts of these rows.
        capacity: int64 ``[rows, ranks]``, slots.
        copies: int64 ``[rows]``, copies that may be placed.
    """
    bound: FloatArray = np.maximum(1.0, (load / counts).max(axis=1))
    usable = (capacity > 0).sum(axis=1)
    bound = np.where(usable < capacity.shape[1], np.maximum(bound, load.sum(axis=1) / usable), bound)
    single = np.nonzero(copies == load.shape[1])[0]
    if len(single):
        bound[single] = np.maximum(bound[single], _bound_singles(load[single], capacity[single]))
    return bound


def _bound_singles(load: FloatArray, capacity: IntArray) -> FloatArray:
    """Bounds 3 and 4, of rows with one copy of each expert."""
    rows, experts = load.shape
    ranks = capacity.shape[1]
    none = np.zeros((rows, 1))
    heaviest = np.cumsum(load, axis=1)
    lightest = np.concatenate([none, np.cumsum(load[:, ::-1], axis=1)], axis=1)
    room = np.concatenate([none, np.cumsum(-np.sort(-capacity, axis=1), axis=1)], axis=1).astype(np.int64)
    some = np.arange(1, min(ranks, experts) + 1)
    held = np.maximum(experts - room[:, ranks - some], some)
    beside = np.take_along_axis(lightest, held - some, axis=1)
    bound: FloatArray = ((heaviest[:, : len(some)] + beside) / some).max(axis=1)
    if experts > ranks:
        shared = np.maximum(held[:, 0] - 2, 0)
        pair = load[:, ranks - 1] + load[:, ranks] + lightest[np.arange(rows), shared]
        bound = np.maximum(bound, pair)
    return bound
