"""A plan drawn in a terminal: what each rank of one layer computes, before and after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from moescope.schemas.records import FloatArray, IntArray

_MOST_RANKS: Final = 16
_FULLEST, _EMPTIEST = 8, 4
_LEAST_BAR: Final = 8
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_MEAN: Final = "│"
_MEAN_INSIDE: Final = "┃"


def draw_ranks(before: FloatArray, after: FloatArray, width: int) -> Iterator[str]:
    """Draw a bar for each rank; of many ranks the fullest and the emptiest.

    Args:
        before: float64 ``[ranks]``, load in multiples of the mean rank load.
        after: the same with the plan.
        width: columns.
    """
    bar = max(_LEAST_BAR, (width - 22) // 2)
    top = max(float(before.max(initial=1.0)), float(after.max(initial=1.0)))
    yield f"rank  {'before':<{bar + 6}}  after   ({_MEAN} is the mean rank)"
    shown, gap = _choose(before)
    for position, rank in enumerate(shown):
        if position == gap:
            yield f"   …  {len(before) - len(shown)} ranks between these"
        yield (
            f"{rank:>4}  {_bar(before[rank], top, bar)} {before[rank]:>5.2f}  "
            f"{_bar(after[rank], top, bar)} {after[rank]:>5.2f}"
        )


def _choose(before: FloatArray) -> tuple[IntArray, int]:
    """Ranks to show, and the position of the first one after a gap; −1 where there is none."""
    if len(before) <= _MOST_RANKS:
        return np.arange(len(before)), -1
    order = np.argsort(-before, kind="stable")
    return np.concatenate([order[:_FULLEST], order[-_EMPTIEST:]]), _FULLEST


def _bar(value: float, top: float, width: int) -> str:
    eighths = round(value / top * width * 8)
    full, rest = divmod(eighths, 8)
    cells = list("█" * full + (_EIGHTHS[rest] if rest else ""))[:width]
    cells += [" "] * (width - len(cells))
    mean = min(int(1 / top * width), width - 1)
    cells[mean] = _MEAN_INSIDE if mean < full else _MEAN if cells[mean] == " " else cells[mean]
    return "".join(cells)
