"""How many copies each expert gets. Loads are scaled so that the mean rank load is 1."""

from __future__ import annotations

import numpy as np

from moescope.schemas.records import FloatArray, IntArray

_TIE_BREAK = 1e-12
"""Of a rank's load, added to every expert: spare copies of experts without load go round."""


def minimax_counts(load: FloatArray, copies: IntArray, most: int, least: IntArray | None = None) -> IntArray:
    """Give out copies so that the largest load per copy is as small as it can be.

    The next copy always goes to the expert with the largest load per copy, which is exact for this aim (the
    first step of DeepSeek's EPLB). Nearly all of them are given at once: with x = Σ load / spare copies,
    ⌈load / x⌉ copies fit and none of them is one too many.

    Args:
        load: float64 ``[rows, experts]``, falling along each row unless ``least`` is given.
        copies: int64 ``[rows]``, copies to give, at least one per expert.
        most: copies of one expert at most; what would go beyond it is not given.
        least: int64 ``[rows, experts]``, copies that are given already; None is one each.

    Returns:
        int64 ``[rows, experts]``.
    """
    rows, experts = load.shape
    counts = np.ones((rows, experts), dtype=np.int64) if least is None else least.copy()
    spare = np.minimum(copies, experts * most) - counts.sum(axis=1)
    if least is None and spare.max(initial=0) > 0:
        size = load.sum(axis=1) / np.maximum(spare, 1)
        size[(size <= 0) | (spare <= 0)] = np.inf
        np.clip(np.ceil(load / size[:, None] - 1e-9), 1, most, out=counts, casting="unsafe")
        spare = np.minimum(copies, experts * most) - counts.sum(axis=1)
    width = experts
    if least is None:
        # With k copies to give, only the k heaviest of the experts with one copy can be in turn.
        split = int(np.nonzero((counts > 1).any(axis=0))[0].max(initial=-1)) + 1
        width = min(experts, split + int(spare.max(initial=0)))
    _give(load[:, :width], counts[:, :width], spare, most)
    left = np.minimum(copies, experts * most) - counts.sum(axis=1)
    if width < experts and left.any():
        _give(load, counts, left, most)
    return counts


def _give(load: FloatArray, counts: IntArray, spare: IntArray, most: int) -> None:
    """Give ``spare`` copies one by one, in place."""
    row = np.arange(len(load))
    padded = load + _TIE_BREAK
    size = np.where(counts < most, padded / counts, -1.0)
    for step in range(int(spare.max(initial=0))):
        chosen = size.argmax(axis=1)
        gets = (spare > step) & (size[row, chosen] > 0)
        if not gets.any():
            return
        at = row[gets], chosen[gets]
        counts[at] += 1
        size[at] = np.where(counts[at] < most, padded[at] / counts[at], -1.0)


def counts_up_to(load: FloatArray, size: FloatArray, most: int) -> IntArray:
    """Cut every expert into copies of at most ``size`` (float64 ``[rows]``): int64 ``[rows, experts]``."""
    return np.clip(np.ceil(load / size[:, None] - 1e-9), 1, most).astype(np.int64)
