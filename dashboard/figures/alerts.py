"""When each alert was pending, firing or without data."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import plotly.graph_objects as go

from moescope.analysis.alert_records import AlertSeverity, AlertSpan, AlertState
from moescope.dashboard import theme
from moescope.dashboard.labels import viewer_zone, zone_title

_ROW_HEIGHT: Final = 40
_LABEL_CHARACTERS: Final = 60
_LABEL_WORDS: Final = {"service": "", "phase": "", "ep_group": "EP group", "ep_rank": "rank"}
"""A deployment and a phase need no word before them."""
_STYLE: Final = {
    "firing, page": (theme.BAD, ""),
    "firing, ticket": (theme.WARM, ""),
    "no data": (theme.MUTED, "/"),
    "pending": (theme.OK, ""),
}


def draw_history(spans: Sequence[AlertSpan], start: datetime, end: datetime) -> go.Figure:
    """Draw a row for each alert, the newest on top, with a bar for each state that it was in."""
    rows = list(dict.fromkeys(_row(span) for span in sorted(spans, key=lambda span: span.start)))
    figure = go.Figure()
    for name, (color, shape) in _STYLE.items():
        bars = [span for span in spans if _word(span) == name]
        if bars:
            figure.add_trace(_bars(name, bars, color, shape))
    figure.update_xaxes(title={"text": zone_title()}, type="date", range=[_local(start), _local(end)])
    figure.update_yaxes(categoryorder="array", categoryarray=rows, automargin=True, fixedrange=True)
    figure.update_layout(
        height=_ROW_HEIGHT * len(rows) + 110,
        margin={"l": 8, "r": 16, "t": 32, "b": 48},
        barmode="overlay",
        bargap=0.35,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0},
        uirevision="alert_history",
    )
    return figure


def _bars(name: str, spans: Sequence[AlertSpan], color: str, shape: str) -> go.Bar:
    return go.Bar(
        orientation="h",
        name=name,
        y=[_row(span) for span in spans],
        base=[_local(span.start) for span in spans],
        x=[(span.end - span.start).total_seconds() * 1000 for span in spans],
        customdata=[[_local(span.start), "now" if span.is_open else _local(span.end)] for span in spans],
        marker={"color": color, "line": {"width": 0}, "pattern": {"shape": shape}},
        hovertemplate=f"%{{y}}<br><b>{name}</b> from %{{customdata[0]}} to %{{customdata[1]}}<extra></extra>",
    )


def _word(span: AlertSpan) -> str:
    if span.state is AlertState.FIRING:
        return "firing, page" if span.severity is AlertSeverity.PAGE else "firing, ticket"
    return "no data" if span.state is AlertState.NO_DATA else "pending"


def _row(span: AlertSpan) -> str:
    """Name above, what it is about below: rows of one rule differ in their last labels."""
    about = ", ".join(_label(name, value) for name, value in span.labels.items() if name != "instance")
    shown = about if len(about) <= _LABEL_CHARACTERS else f"{about[: _LABEL_CHARACTERS - 1]}…"
    return f"<b>{span.name}</b><br>{shown}"


def _label(name: str, value: str) -> str:
    return f"{_LABEL_WORDS.get(name, name)} {value}".strip()


def _local(moment: datetime) -> str:
    return f"{moment.astimezone(viewer_zone()):%Y-%m-%d %H:%M:%S}"
