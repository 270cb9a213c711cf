"""Plain tables for a terminal: no borders, numbers to the right, cut at the terminal's width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_GAP: Final = "  "
_ELLIPSIS: Final = "…"


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and the side on which its cells stand."""

    heading: str
    left: bool = False


def render_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> str:
    """Lay out rows of cells, one line each, no line longer than ``width``.

    A table that is too wide shortens its widest left-aligned column; numbers are never cut.
    """
    widths = [
        max(len(column.heading), *(len(row[i]) for row in rows), 0) if rows else len(column.heading)
        for i, column in enumerate(columns)
    ]
    _shorten_text(columns, widths, width)
    lines = [[column.heading for column in columns], *rows]
    return "\n".join(_line(columns, widths, cells) for cells in lines)


def _shorten_text(columns: Sequence[Column], widths: list[int], width: int) -> None:
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    shrinkable = [i for i, column in enumerate(columns) if column.left]
    if excess > 0 and shrinkable:
        widest = max(shrinkable, key=lambda i: widths[i])
        widths[widest] = max(len(columns[widest].heading), len(_ELLIPSIS), widths[widest] - excess)


def _line(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> str:
    padded = []
    for column, width, cell in zip(columns, widths, cells, strict=True):
        shown = cell if len(cell) <= width else cell[: width - 1] + _ELLIPSIS
        padded.append(shown.ljust(width) if column.left else shown.rjust(width))
    return _GAP.join(padded).rstrip()
