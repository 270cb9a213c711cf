"""One expert over time, each phase on an axis of its own."""

from __future__ import annotations

from typing import Final

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moescope.analysis.expert_history import ExpertHistory, ExpertSeries
from moescope.dashboard import theme
from moescope.dashboard.labels import PHASE_LABEL, local_times, unit_words, zone_title
from moescope.schemas import metrics
from moescope.schemas.attributes import Phase

_HEIGHT_PER_PHASE: Final = 150


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
