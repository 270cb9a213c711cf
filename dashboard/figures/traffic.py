"""Rank × rank: what they exchange, and what deduplication saves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moescope.analysis.rank_io import RankTraffic, TrafficValue
from moescope.analysis.rank_nodes import NodeBlock
from moescope.dashboard import theme
from moescope.dashboard.figures.panels import LEGEND, title_text
from moescope.dashboard.figures.rank_matrix import (
    MARGIN,
    STRIP_HEIGHT,
    draw_nodes,
    extent_of,
    label_ranks,
    matrix_height,
    steep_scale,
)
from moescope.dashboard.labels import unit_words
from moescope.schemas import metrics
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
_ROOM_FOR_RANKS: Final = 8
_ROOM_BELOW: Final = 74


def traffic_title(value: TrafficValue) -> str:
    """What a matrix of traffic shows, in the registry's words."""
    metric = _METRIC[value]
    return f"{metric.name}, {unit_words(metric)} a second"


def draw_traffic(traffic: RankTraffic, value: TrafficValue, blocks: Sequence[NodeBlock] = ()) -> go.Figure:
    """Draw one matrix, the row reports; above and beside it what each column and row adds up to.

    Lines stand between the nodes where ``blocks`` tell them, and a frame about what stays inside of one.
    """
    height = matrix_height(traffic.ranks) + STRIP_HEIGHT
    figure = make_subplots(
        rows=2,
        cols=2,
        shared_xaxes=True,
        shared_yaxes=True,
        horizontal_spacing=0.012,
        vertical_spacing=8 / height,
        column_widths=[0.86, 0.14],
        row_heights=[STRIP_HEIGHT / height, 1 - STRIP_HEIGHT / height],
        specs=[[{}, None], [{}, {}]],
    )
    is_received = value is TrafficValue.BYTES_RECEIVED
    sentence = f"Rank %{{y}} {_VERB[value]} rank %{{x}}"
    figure.add_trace(_heatmap(traffic.per_second(value), traffic.ranks, sentence), row=2, col=1)
    columns, rows = _sum_bars(traffic, value)
    figure.add_trace(columns, row=1, col=1)
    figure.add_trace(rows, row=2, col=2)
    label_ranks(figure, None, row=2, column=1)
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
    low, high = extent_of(traffic.ranks)
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
    draw_nodes(figure, blocks, row=2, column=1)
    figure.update_layout(
        height=height + MARGIN["t"] + _ROOM_BELOW,
        margin=MARGIN | {"b": _ROOM_BELOW},
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


def draw_deduplication(traffic: RankTraffic, saved: FloatArray) -> go.Figure:
    """Draw what each rank sends: assignments as they would travel one by one, tokens as they do.

    Args:
        traffic: of one phase.
        saved: float64 ``[ranks]``, the part of the assignments that does not travel.
    """
    kinds = (
        (TrafficValue.ASSIGNMENTS, {"color": theme.ROOM, "line": {"width": 1, "color": theme.LIMIT}}),
        (TrafficValue.TOKENS, {"color": theme.REQUEST, "line": {"width": 0}}),
    )
    figure = go.Figure(
        [
            go.Bar(
                x=traffic.ranks,
                y=traffic.row_sums_per_second(value),
                name="assignments"
                if value is TrafficValue.ASSIGNMENTS
                else "tokens, each sent once to a rank",
                marker=look,
                customdata=saved,
                hovertemplate=(
                    f"Rank %{{x}}: <b>%{{y:.3s}}</b> {value.value} a second, "
                    "%{customdata:.0%} of the assignments are saved<extra></extra>"
                ),
            )
            for value, look in kinds
        ]
    )
    low, high = extent_of(traffic.ranks)
    figure.add_annotation(
        text=title_text("Sent by each rank", f"{metrics.RANK_ASSIGNMENTS.name}, {metrics.RANK_TOKENS.name}"),
        xref="paper",
        yref="paper",
        x=0,
        y=1,
        xanchor="left",
        yanchor="bottom",
        yshift=4,
        showarrow=False,
    )
    figure.update_yaxes(
        title={"text": "a second", "standoff": 8}, rangemode="tozero", nticks=5, tickformat="~s"
    )
    figure.update_xaxes(
        title={"text": "rank that sends", "standoff": 8},
        range=[low, max(high, low + _ROOM_FOR_RANKS)],
        showgrid=False,
        zeroline=False,
    )
    figure.update_layout(
        barmode="overlay",
        height=260,
        margin=MARGIN | {"l": 64, "t": 52},
        bargap=0.25,
        hoverlabel={"align": "left"},
        legend=LEGEND,
        uirevision="deduplication",
    )
    return figure


def _heatmap(cells: FloatArray, ranks: IntArray, sentence: str) -> go.Heatmap:
    return go.Heatmap(
        z=cells,
        x=ranks,
        y=ranks,
        zmin=0,
        zmax=float(np.nanmax(cells, initial=0.0)) or 1,
        colorscale=steep_scale(),
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


def _unit(value: TrafficValue) -> str:
    return unit_words(_METRIC[value])
