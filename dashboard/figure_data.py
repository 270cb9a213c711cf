"""What a figure shows, as a table: one row a point, whatever the figure is made of."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go

_TAG: Final = re.compile(r"<[^>]+>")
_HEATMAP: Final = "heatmap"


def drawn_values(figure: go.Figure) -> pd.DataFrame:
    """Every point that is drawn.

    Returns:
        ``panel`` (its title) and ``series`` where there are such, then a column for each axis, named by the
        axis title where all panels share it, and ``value`` for the cells of a heatmap.
    """
    parts = [_points(figure, trace) for trace in figure.data if _is_drawn(trace)]
    if not parts:
        return pd.DataFrame({"x": [], "y": []})
    table = pd.concat(parts, ignore_index=True)
    for name in ("panel", "series"):
        if not table[name].any():
            table = table.drop(columns=name)
    return table.rename(columns={"x": _axis_name(figure, "x"), "y": _axis_name(figure, "y")})


def _is_drawn(trace: Any) -> bool:
    """Markers without a place only carry a colour scale."""
    if trace.type == _HEATMAP:
        return trace.z is not None and len(trace.z) > 0
    return trace.y is not None and any(value is not None for value in trace.y)


def _points(figure: go.Figure, trace: Any) -> pd.DataFrame:
    columns: dict[str, Any] = {"panel": _panel_title(figure, trace), "series": plain_text(trace.name or "")}
    if trace.type == _HEATMAP:
        cells = np.asarray(trace.z)
        rows, count = cells.shape
        columns["x"] = np.tile(np.arange(count) if trace.x is None else np.asarray(trace.x), rows)
        columns["y"] = np.repeat(np.arange(rows) if trace.y is None else np.asarray(trace.y), count)
        columns["value"] = cells.ravel()
    else:
        columns["x"] = np.asarray(trace.x if trace.x is not None else range(len(trace.y)))
        columns["y"] = np.asarray(trace.y)
    return pd.DataFrame(columns)


def _panel_title(figure: go.Figure, trace: Any) -> str:
    """The note that stands on the panel of a trace."""
    reference = f"{trace.xaxis or 'x'} domain", f"{trace.yaxis or 'y'} domain"
    notes = figure.layout.annotations
    return next((plain_text(note.text) for note in notes if (note.xref, note.yref) == reference), "")


def _axis_name(figure: go.Figure, letter: str) -> str:
    """The title that all axes of that letter share, the letter where there is none or several."""
    titles = {plain_text(text) for text in _axis_titles(figure, letter)}
    return titles.pop() if len(titles) == 1 else letter


def _axis_titles(figure: go.Figure, letter: str) -> Iterator[str]:
    axes: Sequence[Any] = list(figure.select_xaxes() if letter == "x" else figure.select_yaxes())
    for axis in axes:
        if axis.title.text:
            yield axis.title.text


def plain_text(text: str) -> str:
    """A label without its markup."""
    return html.unescape(_TAG.sub("", text)).replace("\N{NO-BREAK SPACE}", " ").replace("  ", ", ")
