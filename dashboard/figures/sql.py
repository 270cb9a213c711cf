"""The chart of a person's own query."""

from __future__ import annotations

from typing import Final

import plotly.graph_objects as go

from moescope.analysis.sql_chart import ROWS, Chart, ChartKind, Series
from moescope.dashboard import theme

_HEIGHT: Final = 420


def draw_answer(chart: Chart) -> go.Figure:
    """Draw the chosen columns: lines over time, bars by name, points for two amounts."""
    figure = go.Figure()
    for index, series in enumerate(chart.series):
        figure.add_trace(_trace(chart, series, theme.SERIES_COLOR[index % len(theme.SERIES_COLOR)], index))
    choice = chart.choice
    along = "" if choice.x == ROWS else f"{choice.x} (UTC)" if chart.kind is ChartKind.LINE else choice.x
    figure.update_xaxes(title={"text": along}, showgrid=chart.kind is ChartKind.POINTS)
    if chart.is_named:
        figure.update_xaxes(type="category")
    figure.update_yaxes(title={"text": choice.y}, rangemode="tozero", zeroline=False)
    figure.update_layout(
        height=_HEIGHT,
        margin={"l": 64, "r": 16, "t": 16, "b": 56},
        barmode="group",
        bargap=0.25,
        showlegend=len(chart.series) > 1,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0},
        uirevision=str(choice),
    )
    return figure


def _trace(chart: Chart, series: Series, color: str, index: int) -> go.Bar | go.Scatter:
    name = f"{series.name}: " if series.name else ""
    hover = f"{name}<b>%{{y}}</b> {chart.choice.y}<br>%{{x}}<extra></extra>"
    common = {"x": series.x, "y": series.y, "name": series.name, "hovertemplate": hover}
    if chart.kind is ChartKind.BAR:
        return go.Bar(**common, marker={"color": color, "line": {"width": 0}})
    dash = theme.SERIES_DASH[index // len(theme.SERIES_COLOR) % len(theme.SERIES_DASH)]
    return go.Scatter(
        **common,
        mode="markers" if chart.kind is ChartKind.POINTS else "lines+markers",
        line={"color": color, "width": 2, "dash": dash},
        marker={"color": color, "size": 5},
    )
