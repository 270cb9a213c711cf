"""Two windows side by side, and where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moescope.analysis.comparison import NumberChange, Series, Unit
from moescope.analysis.comparison_load import Differences, ExpertShifts, LoadComparison
from moescope.analysis.expert_load import TimeArray
from moescope.analysis.imbalance import RATIO_FORMULA
from moescope.dashboard import theme
from moescope.dashboard.figures.panels import (
    LEGEND,
    PanelTitle,
    make_panels,
    place_of,
    show_percent,
    show_seconds,
    title_text,
)
from moescope.dashboard.figures.rank_axis import add_title, rank_extent
from moescope.dashboard.labels import value_title
from moescope.schemas import metrics
from moescope.schemas.records import FloatArray

MAX_SHIFTS: Final = 2_000
_A: Final = {"color": theme.REQUEST, "width": 2.2}
_B: Final = {"color": theme.MUTED, "width": 2.2, "dash": "dash"}
_COLUMNS: Final = 3
_MINUTE: Final = np.timedelta64(60_000, "ms")
_HOVER: Final = {Unit.SECONDS: "%{y:.3s}s", Unit.SHARE: "%{y:.1%}", Unit.RATE: "%{y:.3s} a second"}
_MARGIN: Final = {"l": 64, "r": 16, "t": 52, "b": 52}


def draw_numbers(
    numbers: Sequence[NumberChange], *, end_of_a: np.datetime64, end_of_b: np.datetime64
) -> go.Figure:
    """Draw every number of both windows upon each other, by the time before the end of its window."""
    titles = [PanelTitle(one.quantity.name, value_title(one.quantity.metric)) for one in numbers]
    columns = min(_COLUMNS, max(len(titles), 1))
    figure = make_panels(titles, columns=columns, revision="compare")
    for index, one in enumerate(numbers):
        where = place_of(index, columns)
        unit = one.quantity.unit
        for name, series, end, look in (("B", one.b, end_of_b, _B), ("A", one.a, end_of_a, _A)):
            if series is not None:
                trace = _line(name, series, end, unit)
                trace.update(line=look, showlegend=index == 0)
                figure.add_trace(trace, row=where[0], col=where[1])
        if unit is Unit.SECONDS:
            show_seconds(figure, where)
        elif unit is Unit.SHARE:
            show_percent(figure, where)
        else:
            figure.update_yaxes(tickformat="~s", row=where[0], col=where[1])
    for axis in figure.select_xaxes():
        if axis.title.text:
            axis.update(title={"text": "minutes before the end of the window"})
    return figure


def draw_layers(load: LoadComparison) -> go.Figure:
    """Draw by layer how well both are balanced, and how much of the load went to other experts."""
    rows = 1 if load.balance is None else 2
    figure = make_subplots(rows=rows, shared_xaxes=True, vertical_spacing=0.16 if rows > 1 else 0)
    if load.balance is not None:
        for trace in _balance_traces(load.balance):
            figure.add_trace(trace, row=1, col=1)
        add_title(figure, 1, 1, title_text("Balance", f"{RATIO_FORMULA}, net of noise"))
    drift = load.drift
    figure.add_trace(
        go.Bar(
            x=load.layers,
            y=drift.net_variation,
            showlegend=False,
            marker={"color": _colors(drift.is_significant), "line": {"width": 0}},
            customdata=np.stack([drift.total_variation, drift.floor], axis=1),
            hovertemplate=(
                "Layer %{x}: <b>%{y:.1%}</b> of assignments go to other experts than in B, net of noise<br>"
                "%{customdata[0]:.1%} in all, noise makes %{customdata[1]:.1%}<extra></extra>"
            ),
        ),
        row=rows,
        col=1,
    )
    figure.update_yaxes(tickformat=".0%", rangemode="tozero", nticks=4, row=rows, col=1)
    add_title(figure, rows, 1, title_text("Assignments that went to other experts", "share, beyond noise"))
    figure.update_xaxes(showgrid=False)
    figure.update_xaxes(title={"text": "layer", "standoff": 8}, row=rows, col=1)
    _lay_out(figure, 170 * rows + 100, "layers")
    return figure


def draw_ranks(ranks: Differences) -> go.Figure:
    """Draw by rank how much more or less of the work it has in A."""
    figure = go.Figure(
        go.Bar(
            x=ranks.labels,
            y=ranks.difference,
            marker={"color": _colors(ranks.is_beyond_noise), "line": {"width": 0}},
            showlegend=False,
            customdata=np.stack([ranks.of_a, ranks.of_b], axis=1),
            hovertemplate=(
                "Rank %{x}: <b>%{customdata[0]:.3f} ×</b> the mean rank's work, %{customdata[1]:.3f} × in B"
                "<extra></extra>"
            ),
        )
    )
    figure.update_yaxes(title={"text": "A − B, × the mean rank", "standoff": 8}, nticks=5)
    figure.update_xaxes(
        title={"text": "EP rank", "standoff": 8},
        range=rank_extent(ranks.labels),
        showgrid=False,
        zeroline=False,
    )
    _title_whole(figure, "Work over all layers", f"{metrics.EXPERT_TOKENS.name}, orange is beyond noise")
    _lay_out(figure, 260, "rank changes")
    return figure


def draw_experts(shifts: ExpertShifts, load: LoadComparison, *, experts: int) -> go.Figure:
    """Draw the experts whose share differs beyond noise where they are: layer and expert."""
    times = np.clip(np.nan_to_num(np.log2(np.maximum(shifts.times[:MAX_SHIFTS], 1e-3)), posinf=4), -4, 4)
    of_a, of_b = shifts.share_of_a[:MAX_SHIFTS], shifts.share_of_b[:MAX_SHIFTS]
    size = np.clip(6 + 40 * np.sqrt(np.abs(of_a - of_b)), 6, 22)
    top = max(1.0, float(np.abs(times).max(initial=0.0)))
    figure = go.Figure(
        go.Scatter(
            x=shifts.experts[:MAX_SHIFTS],
            y=shifts.layers[:MAX_SHIFTS],
            mode="markers",
            showlegend=False,
            customdata=np.stack([of_a, of_b], axis=1),
            marker={
                "size": size,
                "color": times,
                "cmin": -top,
                "cmax": top,
                "colorscale": [[0, "rgb(43, 122, 196)"], [0.5, "rgba(128, 128, 128, 0.35)"], [1, theme.BAD]],
                "line": {"width": 0},
                "colorbar": {
                    "title": {"text": "A over B", "side": "right"},
                    "thickness": 10,
                    "outlinewidth": 0,
                    "tickvals": [-top, 0, top],
                    "ticktext": [f"{2**-top:.2g} ×", "1 ×", f"{2**top:.2g} ×"],
                },
            },
            hovertemplate=(
                "Layer %{y}, expert %{x}: <b>%{customdata[0]:.2%}</b> of the layer, %{customdata[1]:.2%} in B"
                "<extra></extra>"
            ),
        )
    )
    low, high = float(load.layers[0]), float(load.layers[-1])
    figure.update_xaxes(title={"text": "expert"}, range=[-0.5, experts - 0.5], showgrid=False, zeroline=False)
    figure.update_yaxes(
        title={"text": "layer"}, range=[high + 0.5, low - 0.5], showgrid=False, zeroline=False
    )
    _title_whole(figure, "Share of the layer", f"{metrics.EXPERT_TOKENS.name}, those beyond noise")
    _lay_out(figure, 380, "experts")
    return figure


def _line(name: str, series: Series, end: np.datetime64, unit: Unit) -> go.Scatter:
    return go.Scatter(
        x=_minutes_before(series.times, end),
        y=series.steps,
        mode="lines" if len(series.times) > 1 else "markers",
        name=name,
        legendgroup=name,
        connectgaps=False,
        hovertemplate=f"<b>{_HOVER[unit]}</b> in {name}<extra></extra>",
    )


def _minutes_before(times: TimeArray, end: np.datetime64) -> FloatArray:
    minutes: FloatArray = (times - end) / _MINUTE
    return minutes


def _balance_traces(balance: Differences) -> tuple[go.Bar, go.Scatter]:
    both = np.stack([balance.of_a, balance.of_b], axis=1)
    sentence = "Layer %{x}: <b>%{customdata[0]:.2f}</b>, %{customdata[1]:.2f} in B<extra></extra>"
    return (
        go.Bar(
            x=balance.labels,
            y=balance.of_a,
            name="A, orange where beyond noise",
            marker={"color": _colors(balance.is_beyond_noise), "line": {"width": 0}},
            customdata=both,
            hovertemplate=sentence,
        ),
        go.Scatter(
            x=balance.labels,
            y=balance.of_b,
            name="B",
            mode="markers",
            marker={"symbol": "line-ew", "size": 9, "line": {"color": theme.LIMIT, "width": 2}},
            customdata=both,
            hovertemplate=sentence,
        ),
    )


def _colors(is_beyond: Sequence[bool] | np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[str]:
    return [theme.WAITING if beyond else theme.OK for beyond in is_beyond]


def _title_whole(figure: go.Figure, in_words: str, axis: str) -> None:
    """Write a title above a figure of one panel, which was not made of subplots."""
    figure.add_annotation(
        text=title_text(in_words, axis),
        xref="paper",
        yref="paper",
        x=0,
        y=1,
        xanchor="left",
        yanchor="bottom",
        yshift=4,
        showarrow=False,
    )


def _lay_out(figure: go.Figure, height: int, revision: str) -> None:
    figure.update_layout(
        height=height,
        margin=_MARGIN,
        bargap=0.25,
        hoverlabel={"align": "left"},
        legend=LEGEND,
        uirevision=revision,
    )
