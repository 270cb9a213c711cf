"""What figures with ranks on an axis share."""

from __future__ import annotations

from typing import Final

import plotly.graph_objects as go

from moescope.dashboard import theme
from moescope.schemas.records import IntArray

MARGIN: Final = {"l": 64, "r": 84, "t": 52, "b": 52}
_FEW: Final = 24


def around_one(low: float, high: float) -> list[list[object]]:
    """The diverging scale with its middle at 1, between ``low`` below and ``high`` above it."""
    below, above = theme.DIVERGING[:2], theme.DIVERGING[3:]
    one = (1 - low) / (high - low)
    steps = [one * at / len(below) for at in range(len(below))]
    steps += [one, *(one + (1 - one) * at / len(above) for at in range(1, len(above) + 1))]
    return [[at, color] for at, color in zip(steps, (*below, theme.DIVERGING[2], *above), strict=True)]


def times_color_bar() -> dict[str, object]:
    """The bar of a scale of multiples."""
    return {"thickness": 10, "outlinewidth": 0, "nticks": 5, "ticksuffix": " ×", "ticks": ""}


def mark_rank(figure: go.Figure, picked: int | None) -> None:
    """Frame the column of a rank, if one is picked."""
    if picked is not None:
        figure.add_vrect(
            x0=picked - 0.5, x1=picked + 0.5, line={"color": theme.RING, "width": 1.6}, row="all", col=1
        )


def add_title(
    figure: go.Figure, row: int, column: int, text: str, *, color: str | None = None, above: int = 4
) -> None:
    """Write a title so many pixels above a panel."""
    figure.add_annotation(
        text=text,
        xref="x domain",
        yref="y domain",
        x=0,
        y=1,
        xanchor="left",
        yanchor="bottom",
        yshift=above,
        showarrow=False,
        font={"color": color} if color else None,
        row=row,
        col=column,
    )


def title_column(figure: go.Figure, column: int, text: str) -> None:
    """Write a title above a panel of the only row; a figure without subplots has column 1."""
    which = "" if column == 1 else str(column)
    figure.add_annotation(
        text=text,
        xref=f"x{which} domain",
        yref=f"y{which} domain",
        x=0,
        y=1,
        xanchor="left",
        yanchor="bottom",
        yshift=3,
        showarrow=False,
    )


def rank_extent(ranks: IntArray) -> list[float]:
    """The ranks, and room for eight: a lone bar as wide as the figure would look like a wall."""
    low, high = (float(ranks[0]), float(ranks[-1])) if len(ranks) else (0.0, 0.0)
    return [low - 0.6, max(high, low + 7) + 0.6]


def rank_ticks(ranks: IntArray) -> dict[str, object]:
    """Few ranks each have a label, and nothing else has."""
    return {"tickvals": ranks} if len(ranks) <= _FEW else {}
