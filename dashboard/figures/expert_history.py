"""One expert over time, each phase on an axis of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moescope.analysis.expert_costs import ExpertLatency
from moescope.analysis.expert_history import ExpertHistory, ExpertSeries
from moescope.dashboard import theme
from moescope.dashboard.figures.panels import PanelTitle, add_line, make_panels, show_seconds
from moescope.dashboard.labels import PHASE_LABEL, local_times, unit_words, zone_title
from moescope.schemas import metrics
from moescope.schemas.attributes import DurationSource, Phase

_HEIGHT_PER_PHASE: Final = 150
_DURATION: Final = {
    DurationSource.MEASURED: metrics.EXPERT_DURATION,
    DurationSource.APPORTIONED: metrics.EXPERT_GROUP_DURATION,
}


def draw_expert_history(history: ExpertHistory, first: Phase) -> go.Figure:
    """Draw an expert's assignments a minute beside its layer's median expert; ``first`` stands on top."""
    stored = [
        phase for phase in (first, *(p for p in Phase if p is not first)) if _has_points(history, phase)
    ]
    phases = stored or [first]
    figure = make_subplots(rows=len(phases), shared_xaxes=True, vertical_spacing=0.16)
    for row, phase in enumerate(phases, start=1):
        _add_phase(figure, row, phase, history.series[phase])
    figure.update_xaxes(title={"text": zone_title(), "standoff": 8}, row=len(phases), col=1)
    figure.update_layout(
        height=_HEIGHT_PER_PHASE * len(phases) + 70,
        margin={"l": 64, "r": 16, "t": 28, "b": 48},
        hovermode="x unified",
        showlegend=False,
        uirevision=f"{history.layer} {history.expert}",
    )
    return figure


def draw_expert_latency(latency: Mapping[Phase, ExpertLatency], first: Phase) -> go.Figure:
    """Draw how long an expert takes for a token, each phase in a panel; ``first`` stands first."""
    phases = sorted(latency, key=lambda phase: phase is not first)
    titles = [
        PanelTitle(
            f"{PHASE_LABEL[phase]}, time a token",
            f"{_DURATION[latency[phase].source].name}, {latency[phase].source.value}",
            theme.PHASE_COLOR[phase],
        )
        for phase in phases
    ]
    figure = make_panels(titles, columns=1, revision="expert latency")
    for row, phase in enumerate(phases, start=1):
        add_line(
            *(figure, (row, 1), latency[phase].times, latency[phase].seconds_per_token),
            name=f"a token, {latency[phase].source.value}",
            hover="%{y:.3s}s",
            line={"color": theme.PHASE_COLOR[phase], "width": 2.2},
        )
        show_seconds(figure, (row, 1))
    return figure


def _has_points(history: ExpertHistory, phase: Phase) -> bool:
    return bool(len(history.series[phase].times))


def _add_phase(figure: go.Figure, row: int, phase: Phase, series: ExpertSeries) -> None:
    times = local_times(series.times)
    color = theme.PHASE_COLOR[phase]
    mode = "lines" if len(times) > 1 else "markers"
    figure.add_trace(
        go.Scatter(
            x=times,
            y=series.median_per_minute,
            mode=mode,
            name="median of the layer",
            line={"color": theme.MUTED, "width": 1.5, "dash": "dot"},
            hovertemplate="%{y:,.0f} the layer's median expert<extra></extra>",
        ),
        row=row,
        col=1,
    )
    figure.add_trace(
        go.Scatter(
            x=times,
            y=series.per_minute,
            mode=mode,
            name=phase.value,
            line={"color": color, "width": 2.2},
            customdata=series.capacity_share,
            hovertemplate="<b>%{y:,.0f}</b> this expert, %{customdata:.0%} of a rank a copy<extra></extra>",
        ),
        row=row,
        col=1,
    )
    figure.update_yaxes(rangemode="tozero", nticks=4, row=row, col=1)
    figure.add_annotation(
        text=f"<b>{PHASE_LABEL[phase]}</b>, {unit_words(metrics.EXPERT_TOKENS)} a minute",
        xref="x domain",
        yref="y domain",
        x=0,
        y=1,
        xanchor="left",
        yanchor="bottom",
        showarrow=False,
        font={"color": color},
        row=row,
        col=1,
    )
