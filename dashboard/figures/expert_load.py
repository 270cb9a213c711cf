"""Layers × experts as a heatmap, each layer's imbalance beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.heatmap import PERCENT, CellValue, HeatmapCells
from moescope.analysis.hot_experts import HotExpert
from moescope.analysis.imbalance import RATIO_FORMULA
from moescope.dashboard import theme
from moescope.dashboard.labels import rate_title
from moescope.schemas import metrics

MAX_RINGS: Final = 200
MAX_FAINT_RINGS: Final = 12
HARMFUL: Final = "harmful hot expert"
HOT: Final = "hot expert"
_PIXELS_PER_LAYER: Final = 6.2
_MIN_HEIGHT, _MAX_HEIGHT = 240, 720
_SCALE_WIDTH: Final = 0.36
_MARGIN: Final = {"l": 56, "r": 12, "t": 40, "b": 48}

_CELL: Final = "Layer %{y}, expert %{x}: "
_SENTENCE: Final = {
    CellValue.TIMES_MEDIAN: _CELL + "<b>%{z:,.0f} %</b> of the layer's median<extra></extra>",
    CellValue.PER_MINUTE: _CELL + "<b>%{z:,.0f}</b> assignments a minute<extra></extra>",
}
_TITLE: Final = {
    CellValue.TIMES_MEDIAN: f"{metrics.EXPERT_TOKENS.name}, × the layer's median expert",
    CellValue.PER_MINUTE: rate_title(metrics.EXPERT_TOKENS),
}


def draw_expert_load(
    assessment: LoadAssessment,
    cells: HeatmapCells,
    *,
    acceptable_ratio: float,
    selected: tuple[int, int] | None = None,
) -> go.Figure:
    """Draw a window.

    Args:
        assessment: whose hot experts are ringed and whose imbalance stands beside.
        cells: of the same window.
        acceptable_ratio: where the line in the strip stands.
        selected: layer and expert under the cross hairs.
    """
    has_strip = assessment.imbalance is not None and len(assessment.imbalance.rank_loads[0:1].T) > 1
    figure = make_subplots(
        cols=2 if has_strip else 1,
        shared_yaxes=True,
        horizontal_spacing=0.012,
        column_widths=[0.86, 0.14] if has_strip else [1.0],
    )
    figure.add_trace(_cells(assessment, cells), col=1, row=1)
    figure.add_trace(_scale(cells), col=1, row=1)
    for rings in _rings(assessment):
        figure.add_trace(rings, col=1, row=1)
    if has_strip:
        _add_strip(figure, assessment, acceptable_ratio)
    if selected is not None:
        _add_cross_hairs(figure, *selected)
    _lay_out(figure, assessment)
    figure.add_annotation(
        text=_TITLE[cells.value],
        xref="paper",
        yref="paper",
        x=_SCALE_WIDTH + 0.015,
        y=1,
        xanchor="left",
        yanchor="bottom",
        yshift=10,
        showarrow=False,
    )
    return figure


def zoom_in(figure: go.Figure, *, x: tuple[float, float], y: tuple[float, float]) -> None:
    """Show only a part of the heatmap, and the same layers beside it."""
    figure.update_xaxes(range=list(x), col=1, row=1)
    figure.update_yaxes(range=list(y))


def _cells(assessment: LoadAssessment, cells: HeatmapCells) -> go.Heatmap:
    colors = _colors(cells.value)
    top = cells.steps[-1]
    scale = [[step / top, color] for step, color in zip(cells.steps, colors, strict=True)]
    return go.Heatmap(
        z=cells.values,
        y=assessment.window.layers,
        zmin=0,
        zmax=top,
        colorscale=[[0, colors[0]], *scale],
        showscale=False,
        hovertemplate=_SENTENCE[cells.value],
    )


def _scale(cells: HeatmapCells) -> go.Scatter:
    """The colour bar, in even octaves: the heatmap's own would squeeze most of them into a corner."""
    ticks = list(range(len(cells.steps)))
    return go.Scatter(
        x=[None],
        y=[None],
        mode="markers",
        hoverinfo="skip",
        showlegend=False,
        marker={
            "color": [0],
            "cmin": 0,
            "cmax": ticks[-1],
            "colorscale": [[i / ticks[-1], color] for i, color in enumerate(_colors(cells.value))],
            "showscale": True,
            "colorbar": {
                "orientation": "h",
                "x": 0,
                "xanchor": "left",
                "y": 1,
                "yanchor": "bottom",
                "ypad": 4,
                "len": _SCALE_WIDTH,
                "thickness": 10,
                "outlinewidth": 0,
                "tickvals": ticks,
                "ticktext": _tick_text(cells),
                "ticks": "",
            },
        },
    )


def _tick_text(cells: HeatmapCells) -> list[str]:
    if cells.value is CellValue.PER_MINUTE:
        return [words.tick(step) for step in cells.steps]
    fractions = {0.25: "¼", 0.5: "½"}
    ratios = [step / PERCENT for step in cells.steps]
    return [f"{fractions.get(ratio) or f'{ratio:g}'} ×" for ratio in ratios]


def _rings(assessment: LoadAssessment) -> Iterator[go.Scatter]:
    """Strong rings around what is harmful, faint ones around what comes next."""
    hot = assessment.hot_experts
    shown = hot.top(hot.num_harmful + MAX_FAINT_RINGS)
    harmful, faint = shown[: hot.num_harmful][:MAX_RINGS], shown[hot.num_harmful :]
    yield _ring(faint, HOT, size=11, color=theme.MUTED, width=1.2)
    yield _ring(harmful, HARMFUL, size=15, color=theme.RING, width=2.4)


def _ring(shown: Sequence[HotExpert], name: str, *, size: int, color: str, width: float) -> go.Scatter:
    return go.Scatter(
        x=[one.expert for one in shown],
        y=[one.layer for one in shown],
        mode="markers",
        name=name,
        showlegend=False,
        marker={"symbol": "circle-open", "size": size, "color": color, "line": {"width": width}},
        customdata=[[one.times_median, words.percent(one.capacity_share)] for one in shown],
        hovertemplate=(
            "Layer %{y}, expert %{x}: <b>%{customdata[0]:.1f} ×</b> the layer's median; one copy takes "
            "<b>%{customdata[1]}</b> of what a whole rank should do<extra></extra>"
        ),
    )


def _add_strip(figure: go.Figure, assessment: LoadAssessment, acceptable_ratio: float) -> None:
    imbalance, placement = assessment.imbalance, assessment.placement
    if imbalance is None or placement is None:
        return
    detail = [
        [int(rank), net, balancedness, verdict.value]
        for rank, net, balancedness, verdict in zip(
            placement.ranks[imbalance.hottest_rank],
            imbalance.net_ratio,
            imbalance.balancedness,
            imbalance.verdicts,
            strict=True,
        )
    ]
    figure.add_trace(
        go.Bar(
            x=imbalance.ratio,
            y=assessment.window.layers,
            orientation="h",
            showlegend=False,
            marker={
                "color": [theme.BAD if bad else theme.OK for bad in imbalance.is_imbalanced],
                "line": {"width": 0},
            },
            customdata=detail,
            hovertemplate=(
                "Layer %{y}: rank %{customdata[0]} does <b>%{x:.2f} ×</b> the mean rank's work<br>"
                "%{customdata[1]:.2f} net of noise, mean / max %{customdata[2]:.2f}: "
                "%{customdata[3]}<extra></extra>"
            ),
        ),
        col=2,
        row=1,
    )
    figure.add_vline(
        x=acceptable_ratio, line={"color": theme.LIMIT, "width": 1.2, "dash": "dot"}, col=2, row=1
    )
    top = max(float(np.nanmax(imbalance.ratio, initial=1.0)), acceptable_ratio)
    figure.update_xaxes(
        # Smaller than the other titles: it has to fit below a strip of a seventh of the page.
        title={"text": RATIO_FORMULA, "standoff": 8, "font": {"size": 12}},
        range=[1, 1 + 1.08 * (top - 1)],
        nticks=4,
        col=2,
        row=1,
    )


def _add_cross_hairs(figure: go.Figure, layer: int, expert: int) -> None:
    line = {"color": theme.RING, "width": 1, "dash": "dot"}
    figure.add_hline(y=layer, line=line, col=1, row=1)
    figure.add_vline(x=expert, line=line, col=1, row=1)


def _lay_out(figure: go.Figure, assessment: LoadAssessment) -> None:
    layers, experts = assessment.window.layers, assessment.window.scope.experts
    height = min(max(_PIXELS_PER_LAYER * len(layers), _MIN_HEIGHT), _MAX_HEIGHT)
    figure.update_layout(
        height=height + _MARGIN["t"] + _MARGIN["b"],
        margin=_MARGIN,
        bargap=0.25,
        hovermode="closest",
        hoverlabel={"align": "left"},
        uirevision=f"{assessment.window.scope.service} {assessment.window.scope.ep_group}",
    )
    figure.update_xaxes(
        title={"text": "expert"},
        range=[-0.5, experts - 0.5],
        showgrid=False,
        zeroline=False,
        col=1,
        row=1,
    )
    low, high = (int(layers[0]), int(layers[-1])) if len(layers) else (0, 1)
    figure.update_yaxes(range=[high + 0.5, low - 0.5], showgrid=False, zeroline=False)
    figure.update_yaxes(title={"text": "layer", "standoff": 8}, col=1, row=1)


def _colors(value: CellValue) -> tuple[str, ...]:
    return theme.DIVERGING if value is CellValue.TIMES_MEDIAN else theme.SEQUENTIAL
