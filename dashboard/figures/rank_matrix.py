"""What matrices of rank × rank share: their size, their colours, the nodes in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go

from moescope.analysis.rank_nodes import NodeBlock
from moescope.dashboard import theme
from moescope.schemas.records import IntArray

STRIP_HEIGHT: Final = 90
MARGIN: Final = {"l": 56, "r": 16, "t": 44, "b": 52}
_COLOR_STEPS: Final = (0.0, 0.03, 0.08, 0.18, 0.38, 0.7, 1.0)
_PIXELS_PER_RANK: Final = 9
_MIN_HEIGHT, _MAX_HEIGHT = 300, 640
_MAX_LINES: Final = 8
"""Of more nodes, lines from edge to edge would hide the cells."""


def draw_nodes(figure: go.Figure, blocks: Sequence[NodeBlock], *, row: int, column: int) -> None:
    """Outline what stays inside of each node, with lines from node to node."""
    for block in blocks:
        low, high = block.first_rank - 0.5, block.last_rank + 0.5
        figure.add_shape(
            type="rect",
            x0=low,
            x1=high,
            y0=low,
            y1=high,
            line={"color": theme.NODE, "width": 1.6},
            row=row,
            col=column,
        )
    line = {"color": theme.NODE, "width": 1, "dash": "dot"}
    for block in blocks[1:] if len(blocks) <= _MAX_LINES else ():
        figure.add_hline(y=block.first_rank - 0.5, line=line, row=row, col=column)
        figure.add_vline(x=block.first_rank - 0.5, line=line, row=row, col=column)


def label_ranks(figure: go.Figure, text: str | None, *, row: int, column: int) -> None:
    """Give the ranks below a matrix their title."""
    figure.update_xaxes(
        title={"text": text, "standoff": 16},
        showgrid=False,
        zeroline=False,
        tickangle=0,
        row=row,
        col=column,
    )


def steep_scale() -> list[list[object]]:
    """Steps that grow: the usual pair can be seen beside one that has ten times as much."""
    return [[at, color] for at, color in zip(_COLOR_STEPS, theme.SEQUENTIAL, strict=True)]


def extent_of(ranks: IntArray) -> tuple[float, float]:
    """From the edge of the first rank to that of the last."""
    return (float(ranks[0]) - 0.5, float(ranks[-1]) + 0.5) if len(ranks) else (-0.5, 0.5)


def matrix_height(ranks: IntArray) -> int:
    """Pixels that a matrix of so many ranks takes."""
    return min(max(_PIXELS_PER_RANK * len(ranks), _MIN_HEIGHT), _MAX_HEIGHT)
