"""Small figures side by side over one time axis: what the pages of latency, memory and health are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moescope.analysis.distribution import QUANTILES, Distribution
from moescope.analysis.expert_load import TimeArray
from moescope.dashboard import theme
from moescope.dashboard.labels import local_times, zone_title
from moescope.schemas.records import FloatArray

LEGEND: Final = {
    "orientation": "h",
    "x": 1,
    "xanchor": "right",
    "y": 1,
    "yanchor": "top",
    "yref": "container",
    "traceorder": "normal",
}
"""At the top of the figure, to the right: above the titles of the panels."""

PANEL_HEIGHT: Final = 190
_TITLE_ROOM: Final = 58
_TIME_ROOM: Final = 62


@dataclass(frozen=True, slots=True)
class PanelTitle:
    """What a panel shows, in words and in the registry's."""

    words: str
    axis: str
    color: str | None = None

    def __str__(self) -> str:
        """As it stands above the panel."""
        return title_text(self.words, self.axis)


def title_text(in_words: str, axis: str) -> str:
    """What stands above a panel: in words, then smaller in the registry's."""
    return f'<b>{in_words}</b>  <span style="font-size: 11px">{axis}</span>'


def make_panels(titles: Sequence[PanelTitle | None], *, columns: int, revision: str) -> go.Figure:
    """An empty grid of panels that share their time; None leaves a place empty."""
    columns = min(columns, max(len(titles), 1))
    rows = -(-max(len(titles), 1) // columns)
    height = rows * PANEL_HEIGHT + _TITLE_ROOM + _TIME_ROOM
    plot_height = height - _TITLE_ROOM - _TIME_ROOM
    figure = make_subplots(
        rows=rows,
        cols=columns,
        shared_xaxes="all",
        horizontal_spacing=0.055 if columns > 1 else 0,
        vertical_spacing=46 / plot_height if rows > 1 else 0,
    )
    figure.update_layout(
        height=height,
        margin={"l": 56, "r": 16, "t": _TITLE_ROOM, "b": _TIME_ROOM},
        hovermode="x unified",
        hoverlabel={"align": "left"},
        legend=LEGEND,
        uirevision=revision,
    )
    for index, title in enumerate(titles):
        row, column = place_of(index, columns)
        if title is None:
            figure.update_xaxes(visible=False, row=row, col=column)
            figure.update_yaxes(visible=False, row=row, col=column)
            continue
        figure.update_yaxes(rangemode="tozero", nticks=5, row=row, col=column)
        figure.add_annotation(
            text=str(title),
            xref="x domain",
            yref="y domain",
            x=0,
            y=1,
            xanchor="left",
            yanchor="bottom",
            yshift=2,
            showarrow=False,
            font={"color": title.color} if title.color else None,
            row=row,
            col=column,
        )
    for column in range(1, columns + 1):
        below = [at for at, title in enumerate(titles) if title and place_of(at, columns)[1] == column]
        row = place_of(below[-1], columns)[0] if below else rows
        figure.update_xaxes(
            title={"text": zone_title(), "standoff": 8},
            showticklabels=True,
            tickangle=0,
            nticks=6 if columns < 4 else 4,
            row=row,
            col=column,
        )
    return figure


def place_of(index: int, columns: int) -> tuple[int, int]:
    """Row and column of a panel, from 1."""
    return index // columns + 1, index % columns + 1


def add_line(
    figure: go.Figure,
    where: tuple[int, int],
    times: TimeArray,
    values: FloatArray,
    *,
    name: str,
    hover: str,
    line: dict[str, object],
    shows_legend: bool = False,
    stack: str | None = None,
) -> None:
    """Draw one series; a single point becomes a marker. ``hover`` is a d3 template of the value."""
    row, column = where
    figure.add_trace(
        go.Scatter(
            x=local_times(times),
            y=values,
            mode="lines" if len(times) > 1 else "markers",
            name=name,
            legendgroup=name,
            showlegend=shows_legend,
            line=line,
            connectgaps=False,
            stackgroup=stack,
            hovertemplate=f"<b>{hover}</b> {name}<extra></extra>",
        ),
        row=row,
        col=column,
    )


def add_percentiles(
    figure: go.Figure,
    where: tuple[int, int],
    distribution: Distribution,
    *,
    color: str,
    hover: str,
    shows_legend: bool,
    limit: float | None = None,
) -> None:
    """Draw p50, p90 and p99 of a distribution, and the limit that it should keep."""
    for name in reversed(QUANTILES):
        add_line(
            figure,
            where,
            distribution.times,
            getattr(distribution, name),
            name=name,
            hover=hover,
            line={"color": color, **theme.QUANTILE_LINE[name]},
            shows_legend=shows_legend,
        )
    if limit is not None:
        add_limit(figure, where, limit)


def add_limit(figure: go.Figure, where: tuple[int, int], limit: float) -> None:
    """Draw what should not be crossed."""
    row, column = where
    figure.add_hline(y=limit, line={"color": theme.LIMIT, "width": 1.2, "dash": "dot"}, row=row, col=column)


def show_seconds(figure: go.Figure, where: tuple[int, int]) -> None:
    """Label an axis of seconds as ``20ms`` and ``1.5s``."""
    row, column = where
    figure.update_yaxes(tickformat="~s", ticksuffix="s", row=row, col=column)


def show_percent(figure: go.Figure, where: tuple[int, int]) -> None:
    """Label an axis of shares from 0 to 100 %."""
    row, column = where
    figure.update_yaxes(tickformat=".0%", range=[0, 1.04], row=row, col=column)
