"""Rank × rank: what they exchange, and who waits for whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moescope.analysis.dispatch import WaitMatrix
from moescope.analysis.rank_io import RankTraffic, TrafficValue
from moescope.dashboard import theme
from moescope.dashboard.figures.panels import title_text
from moescope.dashboard.labels import unit_words
from moescope.schemas import metrics
from moescope.schemas.attributes import DispatchStage
from moescope.schemas.records import FloatArray, IntArray

_METRIC: Final = {
    TrafficValue.BYTES_SENT: metrics.RANK_IO,
    TrafficValue.BYTES_RECEIVED: metrics.RANK_IO,
    TrafficValue.TOKENS: metrics.RANK_TOKENS,
    TrafficValue.ASSIGNMENTS: metrics.RANK_ASSIGNMENTS,
}
_VERB: Final = {
    TrafficValue.BYTES_SENT: "sends %{z:.3s}B a second to",
    TrafficValue.BYTES_RECEIVED: "receives %{z:.3s}B a second from",
    TrafficValue.TOKENS: "sends %{z:.3s} tokens a second to",
    TrafficValue.ASSIGNMENTS: "sends %{z:.3s} assignments a second to",
}
_COLOR_STEPS: Final = (0.0, 0.03, 0.08, 0.18, 0.38, 0.7, 1.0)
_PIXELS_PER_RANK: Final = 9
_MIN_HEIGHT, _MAX_HEIGHT = 300, 640
_STRIP_HEIGHT: Final = 90
_WAIT_WORDS: Final = {
    True: ("s</b> a minute", "s</b> a minute", "s a minute", "seconds a minute"),
    False: (" ×</b> the mean pair", " ×</b> the mean rank", "× the mean pair", "× the mean, no time"),
}
"""Of a cell, of a bar, of the scale and of the title, by whether the engine counts time."""
_MARGIN: Final = {"l": 56, "r": 16, "t": 44, "b": 52}


def traffic_title(value: TrafficValue) -> str:
    """What a matrix of traffic shows, in the registry's words."""
    metric = _METRIC[value]
    return f"{metric.name}, {unit_words(metric)} a second"


def draw_traffic(traffic: RankTraffic, value: TrafficValue) -> go.Figure:
    """Draw one matrix, the row reports; above and beside it what each column and row adds up to."""
    height = _height(traffic.ranks) + _STRIP_HEIGHT
    figure = make_subplots(
        rows=2,
        cols=2,
        shared_xaxes=True,
        shared_yaxes=True,
        horizontal_spacing=0.012,
        vertical_spacing=8 / height,
        column_widths=[0.86, 0.14],
        row_heights=[_STRIP_HEIGHT / height, 1 - _STRIP_HEIGHT / height],
        specs=[[{}, None], [{}, {}]],
    )
    is_received = value is TrafficValue.BYTES_RECEIVED
    sentence = f"Rank %{{y}} {_VERB[value]} rank %{{x}}"
    figure.add_trace(_heatmap(traffic.per_second(value), traffic.ranks, sentence), row=2, col=1)
    columns, rows = _sum_bars(traffic, value)
    figure.add_trace(columns, row=1, col=1)
    figure.add_trace(rows, row=2, col=2)
    _label_ranks(figure, None, row=2, column=1)
    # As a note: a title of this axis is drawn upon its labels, whatever its standoff.
    figure.add_annotation(
        text="from rank" if is_received else "to rank",
        xref="x2 domain",
        yref="paper",
        x=0.5,
        y=0,
        yanchor="top",
        yshift=-24,
        showarrow=False,
        font={"size": 14},
    )
    low, high = _extent(traffic.ranks)
    figure.update_yaxes(range=[high, low], showgrid=False, zeroline=False, row=2)
    figure.update_yaxes(title={"text": "rank that reports", "standoff": 8}, row=2, col=1)
    figure.update_yaxes(rangemode="tozero", nticks=3, tickformat="~s", row=1, col=1)
    figure.update_xaxes(
        title={"text": f"{_unit(value)} a second", "standoff": 8},
        rangemode="tozero",
        nticks=3,
        tickformat="~s",
        tickangle=0,
        row=2,
        col=2,
    )
    _title_scale(figure, traffic_title(value), x=0.375)
    figure.update_layout(
        height=height + _MARGIN["t"] + _MARGIN["b"],
        margin=_MARGIN,
        bargap=0.25,
        hoverlabel={"align": "left"},
        uirevision=f"traffic {value.value}",
    )
    return figure


def _sum_bars(traffic: RankTraffic, value: TrafficValue) -> tuple[go.Bar, go.Bar]:
    """What each column, and each row, adds up to."""
    look = {"marker": {"color": theme.OK, "line": {"width": 0}}, "showlegend": False}
    unit = f"{_unit(value)} a second in all<extra></extra>"
    peer = "from" if value is TrafficValue.BYTES_RECEIVED else "to"
    return (
        go.Bar(
            x=traffic.ranks,
            y=traffic.column_sums_per_second(value),
            hovertemplate=f"{peer.capitalize()} rank %{{x}}: <b>%{{y:.3s}}</b> {unit}",
            **look,
        ),
        go.Bar(
            x=traffic.row_sums_per_second(value),
            y=traffic.ranks,
            orientation="h",
            hovertemplate=f"Rank %{{y}}: <b>%{{x:.3s}}</b> {unit}",
            **look,
        ),
    )


def draw_waits(waits: Mapping[DispatchStage, WaitMatrix], seconds: float) -> go.Figure:
    """Draw the wait matrix of each stage, above it how long each rank was waited for."""
    stages = list(waits)
    figure = make_subplots(
        rows=2,
        cols=len(stages),
        shared_xaxes=True,
        horizontal_spacing=0.07,
        vertical_spacing=0.02,
        row_heights=[0.22, 0.78],
    )
    top = max(float(np.nanmax(_wait_cells(matrix, seconds), initial=0.0)) for matrix in waits.values())
    for column, stage in enumerate(stages, start=1):
        _add_waits(figure, column, waits[stage], seconds, top, is_last=column == len(stages))
    figure.update_layout(
        height=_height(waits[stages[0]].ranks) + _STRIP_HEIGHT + _MARGIN["t"] + _MARGIN["b"],
        margin=_MARGIN | {"r": 92},
        bargap=0.25,
        hoverlabel={"align": "left"},
        uirevision="waits",
    )
    return figure


def _add_waits(
    figure: go.Figure, column: int, matrix: WaitMatrix, seconds: float, top: float, *, is_last: bool
) -> None:
    color = theme.STAGE_COLOR[matrix.stage]
    suffix = "s" if matrix.is_time else "×"
    pair, rank, scale, axis = _WAIT_WORDS[matrix.is_time]
    figure.add_trace(
        go.Bar(
            x=matrix.ranks,
            y=matrix.caused_per_minute(seconds) if matrix.is_time else matrix.caused_of_mean,
            marker={"color": color, "line": {"width": 0}},
            showlegend=False,
            hovertemplate=f"All others waited <b>%{{y:.3s}}{rank} for rank %{{x}}<extra></extra>",
        ),
        row=1,
        col=column,
    )
    heatmap = go.Heatmap(
        z=_wait_cells(matrix, seconds),
        x=matrix.ranks,
        y=matrix.ranks,
        zmin=0,
        zmax=top or 1,
        colorscale=_scale(),
        showscale=is_last,
        colorbar={
            "title": {"text": scale, "side": "right"},
            "thickness": 10,
            "outlinewidth": 0,
            "len": 0.78,
            "y": 0,
            "yanchor": "bottom",
            "x": 1.01,
            "tickformat": "~s",
            "ticksuffix": suffix,
        },
        hovertemplate=f"Rank %{{y}} waited <b>%{{z:.3s}}{pair} for rank %{{x}}<extra></extra>",
    )
    figure.add_trace(heatmap, row=2, col=column)
    _label_ranks(figure, "rank that is waited for", row=2, column=column)
    low, high = _extent(matrix.ranks)
    figure.update_yaxes(range=[high, low], showgrid=False, zeroline=False, row=2, col=column)
    if column == 1:
        figure.update_yaxes(title={"text": "rank that waits", "standoff": 8}, row=2, col=1)
    figure.update_yaxes(rangemode="tozero", nticks=3, tickformat="~s", ticksuffix=suffix, row=1, col=column)
    figure.add_annotation(
        text=title_text(matrix.stage.value.capitalize(), f"{metrics.DISPATCH_WAIT.name}, {axis}"),
        xref="x domain",
        yref="y domain",
        x=0,
        y=1,
        xanchor="left",
        yanchor="bottom",
        yshift=4,
        showarrow=False,
        font={"color": color},
        row=1,
        col=column,
    )


def _wait_cells(matrix: WaitMatrix, seconds: float) -> FloatArray:
    return matrix.per_minute(seconds) if matrix.is_time else matrix.of_mean_pair


def _heatmap(cells: FloatArray, ranks: IntArray, sentence: str) -> go.Heatmap:
    return go.Heatmap(
        z=cells,
        x=ranks,
        y=ranks,
        zmin=0,
        zmax=float(np.nanmax(cells, initial=0.0)) or 1,
        colorscale=_scale(),
        hovertemplate=f"{sentence}<extra></extra>",
        colorbar={
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yanchor": "bottom",
            "ypad": 4,
            "len": 0.36,
            "thickness": 10,
            "outlinewidth": 0,
            "nticks": 5,
            "tickformat": "~s",
            "ticks": "",
        },
    )


def _title_scale(figure: go.Figure, text: str, *, x: float) -> None:
    figure.add_annotation(
        text=text,
        xref="paper",
        yref="paper",
        x=x,
        y=1,
        xanchor="left",
        yanchor="bottom",
        yshift=10,
        showarrow=False,
    )


def _label_ranks(figure: go.Figure, text: str | None, *, row: int, column: int) -> None:
    figure.update_xaxes(
        title={"text": text, "standoff": 16},
        showgrid=False,
        zeroline=False,
        tickangle=0,
        row=row,
        col=column,
    )


def _scale() -> list[list[object]]:
    """Steps that grow: the usual pair can be seen beside one that has ten times as much."""
    return [[at, color] for at, color in zip(_COLOR_STEPS, theme.SEQUENTIAL, strict=True)]


def _extent(ranks: IntArray) -> tuple[float, float]:
    return (float(ranks[0]) - 0.5, float(ranks[-1]) + 0.5) if len(ranks) else (-0.5, 0.5)


def _height(ranks: IntArray) -> int:
    return min(max(_PIXELS_PER_RANK * len(ranks), _MIN_HEIGHT), _MAX_HEIGHT)


def _unit(value: TrafficValue) -> str:
    return unit_words(_METRIC[value])
