"""Ranks over time: their work and their passes, all of them or one."""

from __future__ import annotations

from typing import Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moescope.analysis.expert_load import TimeArray
from moescope.analysis.rank_load import RankLoadHistory
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
from moescope.dashboard.figures.rank_axis import (
    MARGIN,
    add_title,
    around_one,
    times_color_bar,
)
from moescope.dashboard.labels import local_times, value_title, zone_title
from moescope.schemas import metrics
from moescope.schemas.metrics import Metric
from moescope.schemas.records import FloatArray, IntArray

_PIXELS_PER_RANK: Final = 11
_MIN_HEIGHT, _MAX_HEIGHT = 150, 420
_COLUMNS: Final = 2
_LEAST_SPREAD: Final = 0.1
"""What is nearer to the mean than this part looks even."""


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
        add_title(figure, 1, column, title)
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
        height=cells_height + MARGIN["t"] + MARGIN["b"],
        margin=MARGIN,
        hoverlabel={"align": "left"},
        uirevision="rank times",
    )
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


def _load_panel(history: RankLoadHistory) -> tuple[go.Heatmap, IntArray, str]:
    spread = max(_LEAST_SPREAD, float(np.nanmax(np.abs(history.of_mean - 1), initial=0.0)))
    low, high = max(0.0, 1 - spread), 1 + spread
    heatmap = go.Heatmap(
        z=np.round(history.of_mean.T, 4),
        x=local_times(history.times),
        y=history.ranks,
        zmin=low,
        zmax=high,
        colorscale=around_one(low, high),
        hovertemplate="Rank %{y}, %{x|%H:%M}: <b>%{z:.3f} ×</b> the mean rank's work<extra></extra>",
        colorbar=times_color_bar(),
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
        colorbar=times_color_bar() | {"tickformat": "~s", "ticksuffix": "s"},
    )


def _seconds_title(metric: Metric) -> str:
    return f"{value_title(metric)}, waiting included"
