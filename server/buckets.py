"""The buckets of many histogram points as flat arrays over the bytes that came in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

UIntArray = npt.NDArray[np.uint64]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

ELEMENT_BYTES: Final = 8
"""Of a fixed64 or a double on the wire."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of the histogram points of one block.

    Attributes:
        counts: uint64 ``[sum(count_lengths)]``, point after point, over the request's bytes.
        count_lengths: int64 ``[points]``.
        bounds: float64 ``[sum(bound_lengths)]``, in the metric's unit.
        bound_lengths: int64 ``[points]``.
        sums: uint64 ``[points]``: the sum of each point's counts.
    """

    counts: UIntArray
    count_lengths: IntArray
    bounds: FloatArray
    bound_lengths: IntArray
    sums: UIntArray

    def only(self, good: BoolArray) -> Buckets:
        """Return the buckets of some of the points."""
        return Buckets(
            counts=self.counts[np.repeat(good, self.count_lengths)],
            count_lengths=self.count_lengths[good],
            bounds=self.bounds[np.repeat(good, self.bound_lengths)],
            bound_lengths=self.bound_lengths[good],
            sums=self.sums[good],
        )


def pack_buckets(counts: list[bytes], bounds: list[bytes]) -> Buckets:
    """Join the packed fields of several points, in order."""
    # A length that is no multiple of eight is no packed array; the remainder shows in _reads_consistently.
    flat_counts = np.frombuffer(b"".join(map(_whole, counts)), dtype="<u8")
    count_lengths = np.array([len(item) // ELEMENT_BYTES for item in counts], dtype=np.int64)
    return Buckets(
        counts=flat_counts,
        count_lengths=count_lengths,
        bounds=np.frombuffer(b"".join(map(_whole, bounds)), dtype="<f8"),
        bound_lengths=np.array([len(item) // ELEMENT_BYTES for item in bounds], dtype=np.int64),
        sums=_segment_sums(flat_counts, count_lengths),
    )


def _segment_sums(values: UIntArray, lengths: IntArray) -> UIntArray:
    sums = np.zeros(len(lengths), dtype=np.uint64)
    filled = lengths > 0
    starts = (np.cumsum(lengths) - lengths)[filled]
    if len(starts):
        sums[filled] = np.add.reduceat(values, starts)
    return sums


def _whole(packed: bytes) -> bytes:
    rest = len(packed) % ELEMENT_BYTES
    return packed[: len(packed) - rest] if rest else packed
