"""Who waits for whom, rank by rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moescope.analysis.dispatch import WaitMatrix
from moescope.analysis.rank_nodes import NodeBlock
from moescope.dashboard import theme
from moescope.dashboard.figures.panels import title_text
from moescope.dashboard.figures.rank_matrix import (
    MARGIN,
    STRIP_HEIGHT,
    draw_nodes,
    extent_of,
    label_ranks,
    matrix_height,
    steep_scale,
)
from moescope.schemas import metrics
from moescope.schemas.attributes import DispatchStage
from moescope.schemas.records import FloatArray

_WAIT_WORDS: Final = {
    True: ("s</b> a minute", "s</b> a minute", "s a minute", "seconds a minute"),
    False: (" ×</b> the mean pair", " ×</b> the mean rank", "× the mean pair", "× the mean, no time"),
}
"""Of a cell, of a bar, of the scale and of the title, by whether the engine counts time."""


def draw_waits(
    waits: Mapping[DispatchStage, WaitMatrix], seconds: float, blocks: Sequence[NodeBlock] = ()
) -> go.Figure:
    """Draw the wait matrix of each stage, above it how long each rank was waited for, nodes outlined."""
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
        draw_nodes(figure, blocks, row=2, column=column)
    figure.update_layout(
        height=matrix_height(waits[stages[0]].ranks) + STRIP_HEIGHT + MARGIN["t"] + MARGIN["b"],
        margin=MARGIN | {"r": 92},
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
        colorscale=steep_scale(),
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
    label_ranks(figure, "rank that is waited for", row=2, column=column)
    low, high = extent_of(matrix.ranks)
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
