"""Who comes late, from the wait matrix: medians over pairs of the same kind of link.

In an all-to-all the late rank is the one that the others wait for and that waits least itself: a large column
and a small row. Each wait is divided by the median one of its kind over the whole matrix. With k of n ranks
late, k (n − k) of its n² cells are raised and as many lowered, so that median stays the wait for a rank in
time for every k below n; a mean does not (DeepXTrace's rule finds nothing when a third of the ranks is slow).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis.imbalance import BoolArray
from moescope.analysis.medians import median_of_known, quantile_of_known
from moescope.analysis.straggler_links import Links
from moescope.schemas.records import FloatArray

_FEW: Final = 2
"""So many neighbours in time, and what they waited says more than what ranks on other nodes did."""
_UPPER: Final = 0.75


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late the ranks were in one stage. NaN where nothing is known.

    Attributes:
        ratio: float64 ``[windows, ranks]``: the median of what ranks in time waited for each one, over the
            median wait for a rank over such a link. From its own node where enough of it is in time.
        near, far: the same from the ranks of its own node, and from those of other nodes.
        within: float64 ``[windows, ranks]``: upper quartile of what all of its own node waited for it.
        row_near, row_far: float64 ``[windows, ranks]``: the median of what each rank waited itself, alike.
        excess: float64 ``[windows, ranks]``: what all others together waited for it beyond the usual, in the
            unit of the waits.
        share: float64 ``[windows, ranks]``: that, over all that all of them waited.
        waiting: float64 ``[windows, ranks]``: how many others reported.
        cells: float64 ``[windows, ranks, ranks]``: each wait over the median one of its kind.
        beyond: float64 ``[windows, ranks, ranks]``: each wait less the median one of its kind, not negative.
    """

    ratio: FloatArray
    near: FloatArray
    far: FloatArray
    within: FloatArray
    row_near: FloatArray
    row_far: FloatArray
    excess: FloatArray
    share: FloatArray
    waiting: FloatArray
    cells: FloatArray
    beyond: FloatArray


def measure_lateness(waits: FloatArray, links: Links, late_from: float) -> Lateness:
    """Compare every rank's column with the rest of the matrix, window by window.

    Args:
        waits: float64 ``[windows, ranks, ranks]``: row waited for column; NaN in rows that are missing.
        links: the nodes of the ranks.
        late_from: a rank above this ratio is late itself, and its row tells nothing about the others.
    """
    windows = [_one_window(matrix, links, late_from) for matrix in waits]
    return Lateness(*(np.stack(column) for column in zip(*windows, strict=True)))


def _one_window(waits: FloatArray, links: Links, late_from: float) -> tuple[FloatArray, ...]:
    waits = np.where(links.apart & ~_idle(waits)[None, :], waits, np.nan)
    base = np.full(waits.shape, np.nan)
    for kind in (links.same_node, links.other_node):
        base[kind] = _usual(waits[kind])
    cells = np.divide(waits, base, out=np.full(waits.shape, np.nan), where=base > 0)
    neighbours, strangers = (
        np.where(links.same_node, cells, np.nan),
        np.where(links.other_node, cells, np.nan),
    )
    in_time = _rows_in_time(neighbours, strangers, late_from)
    near, far = median_of_known(neighbours[in_time], 0), median_of_known(strangers[in_time], 0)
    has_neighbours = np.isfinite(neighbours[in_time]).sum(axis=0) >= _FEW
    beyond = np.maximum(waits - base, 0)
    excess, total = np.nansum(beyond, axis=0), float(np.nansum(waits))
    return (
        np.where(has_neighbours | np.isnan(far), near, far),
        *(near, far, quantile_of_known(neighbours, _UPPER, 0)),
        *(median_of_known(neighbours, 1), median_of_known(strangers, 1)),
        *(excess, excess / total if total else np.full(excess.shape, np.nan)),
        np.isfinite(waits).sum(axis=0).astype(np.float64),
        *(cells, beyond),
    )


def _rows_in_time(neighbours: FloatArray, strangers: FloatArray, late_from: float) -> BoolArray:
    """Rows of ranks that are not late themselves: bool ``[ranks]``.

    The latest rank hides the next, for which it does not wait. So rows of late ranks are left out until no
    other rank turns out late, or only half of the rows are left.
    """
    in_time: BoolArray = np.asarray(np.isfinite(np.fmax(neighbours, strangers)).any(axis=1))
    least = max(in_time.sum() / 2, 1)
    while True:
        columns = np.fmax(median_of_known(neighbours[in_time], 0), median_of_known(strangers[in_time], 0))
        late = (np.nan_to_num(columns) >= late_from) & in_time
        if not late.any() or in_time.sum() - late.sum() < least:
            return in_time
        in_time = in_time & ~late


def _idle(waits: FloatArray) -> BoolArray:
    """Ranks that nobody waits for at all, as for a dead one: bool ``[ranks]``."""
    return np.asarray(~(np.nan_to_num(waits) > 0).any(axis=0))


def _usual(waits: FloatArray) -> float:
    known = waits[np.isfinite(waits)]
    if not len(known):
        return np.nan
    return float(np.median(known)) or float(known.mean())
