"""Ranks: how much work each has, layer by layer, and how many experts it reads."""

from __future__ import annotations

from typing import Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moescope.analysis.activated_experts import ActivatedExperts
from moescope.analysis.rank_load import RankWork
from moescope.dashboard import theme
from moescope.dashboard.figures.panels import (
    title_text,
)
from moescope.dashboard.figures.rank_axis import (
    MARGIN,
    add_title,
    around_one,
    mark_rank,
    rank_extent,
    rank_ticks,
    times_color_bar,
)
from moescope.schemas import metrics
from moescope.schemas.records import IntArray

_BARS_HEIGHT: Final = 150
_GAP: Final = 46
_PIXELS_PER_LAYER: Final = 4.4
_MIN_HEIGHT, _MAX_HEIGHT = 150, 420


def draw_rank_work(work: RankWork, *, acceptable_ratio: float, picked: int | None) -> go.Figure:
    """Draw each rank's work: over all layers with its worst one, and below it layer by layer."""
    cells_height = min(max(_PIXELS_PER_LAYER * len(work.layers), _MIN_HEIGHT), _MAX_HEIGHT)
    height = _BARS_HEIGHT + _GAP + cells_height
    figure = make_subplots(
        rows=2,
        shared_xaxes=True,
        vertical_spacing=_GAP / height,
        row_heights=[_BARS_HEIGHT / (height - _GAP), cells_height / (height - _GAP)],
    )
    for trace in _work_bars(work):
        figure.add_trace(trace, row=1, col=1)
    figure.add_hline(y=1, line={"color": theme.LIMIT, "width": 1.2, "dash": "dot"}, row=1, col=1)
    figure.add_trace(_layer_cells(work, acceptable_ratio, height, cells_height), row=2, col=1)
    tokens = metrics.EXPERT_TOKENS.name
    add_title(figure, 1, 1, title_text("Work of each rank", f"{tokens}, × the mean rank"))
    add_title(figure, 2, 1, title_text("Layer by layer", f"{tokens}, × the layer's mean rank"))
    figure.update_yaxes(rangemode="tozero", nticks=5, ticksuffix=" ×", row=1, col=1)
    figure.update_yaxes(autorange="reversed", showgrid=False, title={"text": "layer"}, row=2, col=1)
    figure.update_xaxes(
        range=rank_extent(work.ranks), showgrid=False, zeroline=False, **rank_ticks(work.ranks)
    )
    figure.update_xaxes(title={"text": "EP rank", "standoff": 8}, row=2, col=1)
    mark_rank(figure, picked)
    figure.update_layout(
        height=height + MARGIN["t"] + MARGIN["b"],
        margin=MARGIN,
        bargap=0.18,
        hoverlabel={"align": "left"},
        legend={
            "orientation": "h",
            "x": 1,
            "xanchor": "right",
            "y": 1,
            "yanchor": "top",
            "yref": "container",
        },
        uirevision="rank work",
    )
    return figure


def draw_activated_experts(activated: ActivatedExperts, ranks: IntArray, *, picked: int | None) -> go.Figure:
    """Draw how many of its copies each rank reads in one pass, mean of the layers, and how many it holds."""
    figure = go.Figure(
        [
            go.Bar(
                x=ranks,
                y=activated.held.mean(axis=0),
                name="copies held",
                marker={"color": theme.ROOM, "line": {"width": 1, "color": theme.LIMIT}},
                hovertemplate="Rank %{x} holds <b>%{y:.1f}</b> copies of a layer's experts<extra></extra>",
            ),
            go.Bar(
                x=ranks,
                y=activated.independent.mean(axis=0),
                name="read in one pass, tokens independent",
                marker={"color": theme.REQUEST, "line": {"width": 0}},
                hovertemplate="Rank %{x} reads <b>%{y:.1f}</b> of them in one pass<extra></extra>",
            ),
            go.Scatter(
                x=ranks,
                y=activated.clustered.mean(axis=0),
                name="tokens that choose in pairs",
                mode="markers",
                marker={"symbol": "line-ew", "size": 14, "line": {"color": theme.WAITING, "width": 2.2}},
                hovertemplate="Rank %{x} reads <b>%{y:.1f}</b> if tokens choose in pairs<extra></extra>",
            ),
        ]
    )
    figure.update_layout(
        barmode="overlay",
        bargap=0.18,
        height=250,
        margin=MARGIN | {"r": 16},
        hoverlabel={"align": "left"},
        legend={
            "orientation": "h",
            "x": 1,
            "xanchor": "right",
            "y": 1,
            "yanchor": "top",
            "yref": "container",
        },
        uirevision="activated",
    )
    figure.update_yaxes(rangemode="tozero", nticks=5, title={"text": "copies of a layer", "standoff": 8})
    figure.update_xaxes(
        title={"text": "EP rank", "standoff": 8},
        range=rank_extent(ranks),
        showgrid=False,
        zeroline=False,
        **rank_ticks(ranks),
    )
    mark_rank(figure, picked)
    return figure


def _work_bars(work: RankWork) -> tuple[go.Bar, go.Scatter]:
    return (
        go.Bar(
            x=work.ranks,
            y=work.of_mean,
            name="all layers",
            marker={"color": theme.OK, "line": {"width": 0}},
            hovertemplate="Rank %{x}: <b>%{y:.2f} ×</b> the mean rank's work over all layers<extra></extra>",
        ),
        go.Scatter(
            x=work.ranks,
            y=work.worst_of_mean,
            name="its worst layer",
            mode="markers",
            marker={"symbol": "diamond", "size": 8, "color": theme.WAITING},
            customdata=work.layers[work.worst_row] if len(work.layers) else None,
            hovertemplate=(
                "Rank %{x} has most in layer %{customdata}: <b>%{y:.2f} ×</b> that layer's mean rank"
                "<extra></extra>"
            ),
        ),
    )


def _layer_cells(work: RankWork, acceptable_ratio: float, height: float, cells_height: float) -> go.Heatmap:
    high = max(acceptable_ratio, float(np.nanmax(work.of_layer_mean, initial=1.0)))
    return go.Heatmap(
        z=np.round(work.of_layer_mean, 3),
        x=work.ranks,
        y=work.layers,
        zmin=0,
        zmax=high,
        colorscale=around_one(0, high),
        hovertemplate="Rank %{x}, layer %{y}: <b>%{z:.2f} ×</b> the layer's mean rank<extra></extra>",
        colorbar=times_color_bar() | {"len": cells_height / height, "y": 0, "yanchor": "bottom", "x": 1.006},
    )
