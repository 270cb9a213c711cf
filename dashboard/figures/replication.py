"""A plan: what ranks compute before and after it, layer by layer, and what it moves and takes."""

from __future__ import annotations

from typing import Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moescope.analysis import words
from moescope.analysis.imbalance import RATIO_FORMULA
from moescope.analysis.plan_result import PlanResult
from moescope.dashboard import theme
from moescope.dashboard.figures.panels import LEGEND, title_text
from moescope.dashboard.figures.rank_axis import rank_extent, rank_ticks, title_column
from moescope.schemas import metrics
from moescope.schemas.attributes import MemoryPool
from moescope.schemas.records import FloatArray

_HEAT_ROW, _HEAT_LEAST, _HEAT_MOST = 4, 180, 420
_HEIGHT: Final = 260
_MARGIN: Final = {"l": 64, "r": 16, "t": 58, "b": 52}
_LEAST_SPAN: Final = 0.25
"""Ranks this far from the mean have the strongest colour, where none is further."""


def draw_heat(plan: PlanResult) -> go.Figure:
    """Draw what each rank computes in each layer, before and after, on one scale."""
    before, after = plan.rank_load_before, plan.rank_load_after
    figure = make_subplots(cols=2, shared_yaxes=True, horizontal_spacing=0.04)
    span = max(float(np.abs(before - 1).max(initial=0.0)), _LEAST_SPAN)
    for column, (loads, when) in enumerate(((before, "now"), (after, "with the plan")), start=1):
        figure.add_trace(
            go.Heatmap(
                z=loads,
                x=np.arange(loads.shape[1]),
                y=plan.layers,
                # A third of the colours are for less than the mean, the middle is nearly invisible.
                zmin=1 - span / 2,
                zmax=1 + span,
                colorscale=_scale(),
                colorbar={"title": {"text": "× the mean"}, "thickness": 12, "outlinewidth": 0},
                showscale=column == 2,
                hovertemplate=f"Layer %{{y}}, rank %{{x}}, {when}: <b>%{{z:.2f}} ×</b> the mean rank"
                "<extra></extra>",
            ),
            row=1,
            col=column,
        )
        name = "Now" if column == 1 else "With the plan"
        title_column(
            figure, column, title_text(name, f"{metrics.EXPERT_TOKENS.name} of each rank / layer's mean")
        )
    figure.update_xaxes(
        title={"text": "EP rank", "standoff": 8},
        showgrid=False,
        zeroline=False,
        **rank_ticks(np.arange(before.shape[1])),
    )
    figure.update_yaxes(autorange="reversed", showgrid=False, zeroline=False)
    figure.update_yaxes(title={"text": "layer", "standoff": 8}, row=1, col=1)
    rows = min(max(_HEAT_ROW * len(plan.layers), _HEAT_LEAST), _HEAT_MOST)
    figure.update_layout(
        height=rows + _MARGIN["t"] + _MARGIN["b"],
        margin=_MARGIN,
        hoverlabel={"align": "left"},
        uirevision="heat",
    )
    return figure


def draw_ratios(plan: PlanResult) -> go.Figure:
    """Draw max / mean of each layer now and with the plan, and what nothing could go below."""
    figure = go.Figure()
    lines: list[tuple[str, FloatArray, dict[str, object]]] = [
        ("now", plan.ratio_before, {"color": theme.LOST, "width": 2}),
        ("with the plan", plan.ratio_after, {"color": theme.REQUEST, "width": 2.2}),
        ("no placement goes below", plan.bound, {"color": theme.LIMIT, "width": 1.4, "dash": "dot"}),
    ]
    if plan.noise_floor is not None:
        floor = {"color": theme.MUTED, "width": 1.2, "dash": "dash"}
        lines.append(("uniform routing would show", plan.noise_floor, floor))
    for name, values, line in lines:
        figure.add_trace(
            go.Scatter(
                x=plan.layers,
                y=values,
                mode="lines" if len(plan.layers) > 1 else "markers",
                name=name,
                line=line,
                hovertemplate=f"<b>%{{y:.3f}}</b> {name}<extra></extra>",
            )
        )
    figure.update_xaxes(title={"text": "layer", "standoff": 8}, showgrid=False, hoverformat="d")
    top = max(float(one.max(initial=1.0)) for _, one, _ in lines)
    figure.update_yaxes(nticks=5, range=[1 - 0.04 * (top - 1), 1 + 1.08 * max(top - 1, 0.01)])
    figure.update_layout(
        height=_HEIGHT,
        margin=_MARGIN,
        hovermode="x unified",
        hoverlabel={"align": "left"},
        legend=LEGEND,
        uirevision="ratios",
    )
    title_column(figure, 1, title_text("Imbalance of each layer", RATIO_FORMULA))
    return figure


def draw_moves(plan: PlanResult) -> go.Figure:
    """Draw the copies that each rank must receive."""
    per_rank = plan.moved.sum(axis=0)
    sizes = plan.moved_bytes_per_rank
    figure = go.Figure(
        go.Bar(
            x=np.arange(len(per_rank)),
            y=per_rank,
            marker={"color": theme.REQUEST, "line": {"width": 0}},
            customdata=["size not known"] * len(per_rank)
            if sizes is None
            else [words.si_bytes(float(one)) for one in sizes],
            hovertemplate="Rank %{x} receives <b>%{y:,}</b> copies, %{customdata}<extra></extra>",
        )
    )
    figure.update_yaxes(rangemode="tozero", nticks=5)
    _of_ranks(figure, len(per_rank), "moves")
    title_column(figure, 1, title_text("Copies to move", "received by each rank"))
    return figure


def draw_memory(plan: PlanResult) -> go.Figure | None:
    """Draw what experts take on each rank, now and with the plan; None where their size is not known."""
    before, after = plan.memory_per_rank(plan.before), plan.memory_per_rank(plan.placement)
    if before is None or after is None:
        return None
    figure = go.Figure()
    for name, values, color, width in (
        ("now", before, theme.ROOM, None),
        ("with the plan", after, theme.POOL_COLOR[MemoryPool.WEIGHTS], 0.46),
    ):
        figure.add_trace(
            go.Bar(
                x=np.arange(len(values)),
                y=values,
                name=name,
                width=width,
                marker={"color": color, "line": {"width": 1 if width is None else 0, "color": theme.LIMIT}},
                customdata=[words.binary_bytes(float(one)) for one in values],
                hovertemplate=f"Rank %{{x}} {name}: experts take <b>%{{customdata}}</b><extra></extra>",
            )
        )
    ticks, labels = words.binary_ticks(float(max(before.max(), after.max())))
    figure.update_yaxes(tickvals=ticks, ticktext=labels, rangemode="tozero")
    _of_ranks(figure, len(before), "plan memory")
    figure.update_layout(barmode="overlay")
    title_column(figure, 1, title_text("Memory of experts", f"copies × {metrics.EXPERT_WEIGHT_SIZE.name}"))
    return figure


def _scale() -> list[list[object]]:
    colors = theme.DIVERGING
    return [[step / (len(colors) - 1), color] for step, color in enumerate(colors)]


def _of_ranks(figure: go.Figure, count: int, revision: str) -> None:
    figure.update_xaxes(
        title={"text": "EP rank", "standoff": 8},
        range=rank_extent(np.arange(count)),
        showgrid=False,
        zeroline=False,
        **rank_ticks(np.arange(count)),
    )
    figure.update_layout(
        height=_HEIGHT,
        margin=_MARGIN,
        bargap=0.2,
        hoverlabel={"align": "left"},
        legend=LEGEND,
        uirevision=revision,
    )
