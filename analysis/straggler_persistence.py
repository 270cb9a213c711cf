"""Once is chance: from when on a sign counts."""

from __future__ import annotations

import numpy as np

from moescope.analysis.imbalance import BoolArray


def lasts(seen: BoolArray, known: BoolArray, windows: int) -> bool:
    """Whether something was there in ``windows`` of the newest 2 × windows − 1 and in one of the newest two.

    Args:
        seen: bool ``[windows]``: whether it was there, the oldest first.
        known: bool ``[windows]``: whether anything is known of the window.
        windows: how many it takes.
    """
    recent = seen[known][-(2 * windows - 1) :]
    return bool(recent.sum() >= windows and recent[-2:].any())


def newest(seen: BoolArray, known: BoolArray, windows: int) -> BoolArray:
    """Those of the newest windows in which something was there: bool ``[all windows]``."""
    judged = np.zeros(len(seen), dtype=np.bool_)
    judged[np.flatnonzero(known)[-(2 * windows - 1) :]] = True
    return judged & seen
