"""Ranks: how much work each has, how long its passes take, and how many experts it reads."""

from __future__ import annotations

from typing import Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moescope.analysis.activated_experts import ActivatedExperts
from moescope.analysis.expert_load import TimeArray
from moescope.analysis.rank_load import RankLoadHistory, RankWork
from moescope.analysis.rank_steps import RankSteps
from moescope.dashboard import theme
from moescope.dashboard.figures.panels import (
    PanelTitle,
    add_limit,
    add_line,
    make_panels,
    place_of,
    show_seconds,
    title_text,
)
from moescope.dashboard.labels import local_times, value_title, zone_title
from moescope.schemas import metrics
from moescope.schemas.metrics import Metric
from moescope.schemas.records import FloatArray, IntArray

_BARS_HEIGHT: Final = 150
_GAP: Final = 46
_PIXELS_PER_LAYER, _PIXELS_PER_RANK = 4.4, 11
_MIN_HEIGHT, _MAX_HEIGHT = 150, 420
_MARGIN: Final = {"l": 64, "r": 84, "t": 52, "b": 52}
_FEW: Final = 24
_COLUMNS: Final = 2
_LEAST_SPREAD: Final = 0.1
"""What is nearer to the mean than this part looks even."""


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
    _title(figure, 1, 1, title_text("Work of each rank", f"{tokens}, × the mean rank"))
    _title(figure, 2, 1, title_text("Layer by layer", f"{tokens}, × the layer's mean rank"))
    figure.update_yaxes(rangemode="tozero", nticks=5, ticksuffix=" ×", row=1, col=1)
    figure.update_yaxes(autorange="reversed", showgrid=False, title={"text": "layer"}, row=2, col=1)
    figure.update_xaxes(range=_extent(work.ranks), showgrid=False, zeroline=False, **_whole_ticks(work.ranks))
    figure.update_xaxes(title={"text": "EP rank", "standoff": 8}, row=2, col=1)
    _mark_column(figure, picked)
    figure.update_layout(
        height=height + _MARGIN["t"] + _MARGIN["b"],
        margin=_MARGIN,
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


def draw_rank_times(
    history: RankLoadHistory | None, steps: RankSteps | None, *, picked: int | None
) -> go.Figure:
    """Draw every rank over time: what it had to do, and how long its passes took."""
    panels = [
        *(() if history is None else (_load_panel(history),)),
        *(() if steps is None else (_pass_panel(steps),)),
    ]
    ranks = np.unique(np.concatenate([panel[1] for panel in panels]))
    cells_height = min(max(_PIXELS_PER_RANK * len(ranks), _MIN_HEIGHT), _MAX_HEIGHT)
    figure = make_subplots(cols=max(len(panels), 1), horizontal_spacing=0.14)
    for column, (heatmap, rows, title) in enumerate(panels, start=1):
        domain = figure.layout[f"xaxis{column if column > 1 else ''}"].domain
        heatmap.update(colorbar={**heatmap.colorbar.to_plotly_json(), "x": domain[1] + 0.006})
        figure.add_trace(heatmap, row=1, col=column)
        _title(figure, 1, column, title)
        figure.update_xaxes(
            title={"text": zone_title(), "standoff": 8},
            showgrid=False,
            nticks=6,
            tickangle=0,
            row=1,
            col=column,
        )
        low, high = float(rows[0]) - 0.5, float(rows[-1]) + 0.5
        figure.update_yaxes(
            title={"text": "EP rank", "standoff": 8},
            range=[high, low],
            showgrid=False,
            zeroline=False,
            nticks=9,
            row=1,
            col=column,
        )
        if picked is not None:
            figure.add_hrect(
                y0=picked - 0.5, y1=picked + 0.5, line={"color": theme.RING, "width": 1.6}, row=1, col=column
            )
    figure.update_layout(
        height=cells_height + _MARGIN["t"] + _MARGIN["b"],
        margin=_MARGIN,
        hoverlabel={"align": "left"},
        uirevision="rank times",
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
        margin=_MARGIN | {"r": 16},
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
        range=_extent(ranks),
        showgrid=False,
        zeroline=False,
        **_whole_ticks(ranks),
    )
    _mark_column(figure, picked)
    return figure


def draw_one_rank(rank: int, history: RankLoadHistory | None, steps: RankSteps | None) -> go.Figure:
    """Draw one rank over time beside the median rank."""
    stages = [] if steps is None else list(steps.call_seconds)
    titles = [PanelTitle("Work", f"{metrics.EXPERT_TOKENS.name}, × the mean rank")]
    if steps is not None:
        titles.append(PanelTitle("Forward pass", value_title(metrics.STEP_DURATION)))
    titles += [
        PanelTitle(f"{stage.value.capitalize()}, one layer", value_title(metrics.DISPATCH_DURATION))
        for stage in stages
    ]
    figure = make_panels(titles, columns=_COLUMNS, revision=f"rank {rank}")
    figure.update_yaxes(rangemode="normal", row=1, col=1)
    at = None if history is None else np.flatnonzero(history.ranks == rank)
    if history is not None and at is not None and len(at):
        add_line(
            *(figure, (1, 1), history.times, history.of_mean[:, at[0]]),
            name=f"rank {rank}",
            hover="%{y:.2f} ×",
            line={"color": theme.RING, "width": 2.2},
            shows_legend=True,
        )
    add_limit(figure, (1, 1), 1)
    if steps is not None:
        measured = [steps.pass_seconds, *(steps.call_seconds[stage] for stage in stages)]
        for index, values in enumerate(measured, start=1):
            where = place_of(index, _COLUMNS)
            _add_against_median(figure, where, rank, steps, values, shows_legend=index == 1)
    return figure


def _add_against_median(
    figure: go.Figure,
    where: tuple[int, int],
    rank: int,
    steps: RankSteps,
    values: FloatArray,
    *,
    shows_legend: bool,
) -> None:
    add_line(
        *(figure, where, steps.times, steps.median_of(values)),
        name="median rank",
        hover="%{y:.3s}s",
        line={"color": theme.MUTED, "width": 1.8, "dash": "dash"},
        shows_legend=shows_legend,
    )
    position = steps.position(rank)
    if position is not None:
        add_line(
            *(figure, where, steps.times, values[:, position]),
            name=f"rank {rank}",
            hover="%{y:.3s}s",
            line={"color": theme.RING, "width": 2.2},
        )
    show_seconds(figure, where)


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
        colorscale=_around_one(0, high),
        hovertemplate="Rank %{x}, layer %{y}: <b>%{z:.2f} ×</b> the layer's mean rank<extra></extra>",
        colorbar=_color_bar() | {"len": cells_height / height, "y": 0, "yanchor": "bottom", "x": 1.006},
    )


def _load_panel(history: RankLoadHistory) -> tuple[go.Heatmap, IntArray, str]:
    spread = max(_LEAST_SPREAD, float(np.nanmax(np.abs(history.of_mean - 1), initial=0.0)))
    low, high = max(0.0, 1 - spread), 1 + spread
    heatmap = go.Heatmap(
        z=np.round(history.of_mean.T, 4),
        x=local_times(history.times),
        y=history.ranks,
        zmin=low,
        zmax=high,
        colorscale=_around_one(low, high),
        hovertemplate="Rank %{y}, %{x|%H:%M}: <b>%{z:.3f} ×</b> the mean rank's work<extra></extra>",
        colorbar=_color_bar(),
    )
    return heatmap, history.ranks, title_text("Work", f"{metrics.EXPERT_TOKENS.name}, × the mean rank")


def _pass_panel(steps: RankSteps) -> tuple[go.Heatmap, IntArray, str]:
    return (
        _time_cells(steps.times, steps.ranks, steps.pass_seconds),
        steps.ranks,
        title_text("Forward pass", _seconds_title(metrics.STEP_DURATION)),
    )


def _time_cells(times: TimeArray, ranks: IntArray, seconds: FloatArray) -> go.Heatmap:
    return go.Heatmap(
        z=seconds.T,
        x=local_times(times),
        y=ranks,
        zmin=0,
        zmax=float(np.nanmax(seconds, initial=0.0)) or 1,
        colorscale=[[at / (len(theme.SEQUENTIAL) - 1), color] for at, color in enumerate(theme.SEQUENTIAL)],
        hovertemplate="Rank %{y}, %{x|%H:%M}: a pass takes <b>%{z:.3s}s</b><extra></extra>",
        colorbar=_color_bar() | {"tickformat": "~s", "ticksuffix": "s"},
    )


def _seconds_title(metric: Metric) -> str:
    return f"{value_title(metric)}, waiting included"


def _around_one(low: float, high: float) -> list[list[object]]:
    """The diverging scale with its middle at 1, between ``low`` below and ``high`` above it."""
    below, above = theme.DIVERGING[:2], theme.DIVERGING[3:]
    one = (1 - low) / (high - low)
    steps = [one * at / len(below) for at in range(len(below))]
    steps += [one, *(one + (1 - one) * at / len(above) for at in range(1, len(above) + 1))]
    return [[at, color] for at, color in zip(steps, (*below, theme.DIVERGING[2], *above), strict=True)]


def _color_bar() -> dict[str, object]:
    return {"thickness": 10, "outlinewidth": 0, "nticks": 5, "ticksuffix": " ×", "ticks": ""}


def _mark_column(figure: go.Figure, picked: int | None) -> None:
    if picked is not None:
        figure.add_vrect(
            x0=picked - 0.5, x1=picked + 0.5, line={"color": theme.RING, "width": 1.6}, row="all", col=1
        )


def _title(figure: go.Figure, row: int, column: int, text: str) -> None:
    figure.add_annotation(
        text=text,
        xref="x domain",
        yref="y domain",
        x=0,
        y=1,
        xanchor="left",
        yanchor="bottom",
        yshift=4,
        showarrow=False,
        row=row,
        col=column,
    )


def _extent(ranks: IntArray) -> list[float]:
    """The ranks, and room for eight: a lone bar as wide as the figure would look like a wall."""
    low, high = (float(ranks[0]), float(ranks[-1])) if len(ranks) else (0.0, 0.0)
    return [low - 0.6, max(high, low + 7) + 0.6]


def _whole_ticks(ranks: IntArray) -> dict[str, object]:
    return {"tickvals": ranks} if len(ranks) <= _FEW else {}
