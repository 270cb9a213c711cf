"""What can be wrong with the buckets of a histogram, for all points of a block at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from moescope.server.buckets import BoolArray, Buckets, IntArray, UIntArray
from moescope.server.reasons import Reason

Checks = Iterator[tuple[Reason, BoolArray]]
"""Of each check its reason, and bool ``[points]``: who fails it."""

MAX_COUNT: Final = 2**53
"""Counts stay exact as doubles below it, and no telemetry window comes near it."""


def bucket_checks(counts: UIntArray, buckets: Buckets, indexed: BoolArray) -> Checks:
    """Yield what each point of a block fails.

    Args:
        counts: uint64 ``[points]``: what each point says its count is.
        buckets: of the same points.
        indexed: bool ``[points]``: bucket i is index i, never a range.
    """
    without = (buckets.count_lengths == 0) & (buckets.bound_lengths == 0)
    yield Reason.BUCKET_MISMATCH, ~((buckets.count_lengths == buckets.bound_lengths + 1) | without)
    yield Reason.INDEX_BOUNDS, indexed & (_has_other_bounds(buckets) | without)
    yield Reason.BOUNDS_NOT_INCREASING, ~indexed & _has_unordered_bounds(buckets)
    too_large = _any_in_segment(buckets.counts >= MAX_COUNT, buckets.count_lengths)
    yield Reason.COUNT_OUT_OF_RANGE, too_large | (counts >= MAX_COUNT)
    yield Reason.COUNT_MISMATCH, ~without & (buckets.sums != counts)


def _has_other_bounds(buckets: Buckets) -> BoolArray:
    """Whether the bounds of a point are anything but 0, 1, 2 and so on."""
    width = int(buckets.bound_lengths[0])
    if width and (buckets.bound_lengths == width).all():
        other: BoolArray = (buckets.bounds.reshape(-1, width) != np.arange(width)).any(axis=1)
        return other
    starts = np.cumsum(buckets.bound_lengths) - buckets.bound_lengths
    position = np.arange(len(buckets.bounds)) - np.repeat(starts, buckets.bound_lengths)
    return _any_in_segment(buckets.bounds != position, buckets.bound_lengths)


def _has_unordered_bounds(buckets: Buckets) -> BoolArray:
    bad = ~np.isfinite(buckets.bounds)
    if len(bad) > 1:
        # NaN compares false, so it is "not greater" as well; a point's first bound has no predecessor.
        bad[1:] |= ~(buckets.bounds[1:] > buckets.bounds[:-1])
        firsts = (np.cumsum(buckets.bound_lengths) - buckets.bound_lengths)[buckets.bound_lengths > 0]
        bad[firsts] = ~np.isfinite(buckets.bounds[firsts])
    return _any_in_segment(bad, buckets.bound_lengths)


def _any_in_segment(flags: BoolArray, lengths: IntArray) -> BoolArray:
    """Whether any flag is set in each of the neighbouring segments of ``flags``."""
    found = np.zeros(len(lengths), dtype=np.bool_)
    if flags.any():
        found[np.unique(np.repeat(np.arange(len(lengths)), lengths)[flags])] = True
    return found
