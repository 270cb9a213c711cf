"""What no placement can beat, per layer. Loads are scaled so that the mean rank load is 1.

Four lower bounds of max / mean under an even split over copies on distinct ranks:

1. the mean: 1;
2. the largest load per copy under the best counts (:func:`minimax_counts` is exact);
3. without spare copies, the heaviest expert and the lightest ones that must share its rank;
4. without spare copies, the G-th and (G+1)-th heaviest: of G + 1 experts two share one of G ranks, with the
   lightest that must share it too.

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
    experts, ranks = load.shape[1], capacity.shape[1]
    single = copies == experts
    if single.any():
        # What the other ranks have no room for must be on any one rank.
        held = np.maximum(experts - capacity.sum(axis=1) + capacity.min(axis=1), 1)
        lightest = np.concatenate([np.zeros((len(load), 1)), np.cumsum(load[:, ::-1], axis=1)], axis=1)
        row = np.arange(len(load))
        alone = load[:, 0] + lightest[row, held - 1]
        bound = np.where(single, np.maximum(bound, alone), bound)
        if experts > ranks:
            pair = load[:, ranks - 1] + load[:, ranks] + lightest[row, np.maximum(held - 2, 0)]
            bound = np.where(single, np.maximum(bound, pair), bound)
    return bound
