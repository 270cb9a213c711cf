"""What is lost with each rank and node, and what the others get to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moescope.analysis import words
from moescope.analysis.failover_losses import Loss
from moescope.analysis.failover_picture import LossPicture
from moescope.dashboard import theme
from moescope.dashboard.figures.panels import LEGEND, title_text
from moescope.dashboard.figures.rank_axis import rank_extent, title_column
from moescope.schemas import metrics
from moescope.schemas.attributes import MemoryPool

_HEIGHT: Final = 300
_MARGIN: Final = {"l": 64, "r": 16, "t": 58, "b": 52}
_LOST: Final = "no copy elsewhere: lost"
_TAKEN: Final = "copies elsewhere take over"
_LABELLED: Final = 24


def draw_losses(
    ranks: Sequence[Loss], nodes: Sequence[Loss], *, acceptable_share: float, picked: Loss
) -> go.Figure:
    """Draw what would go with each rank, and beside it with each node; what is picked has a mark."""
    parts = [ranks, nodes] if len(nodes) > 1 else [ranks]
    widths = [0.74, 0.26] if len(parts) > 1 else [1.0]
    figure = make_subplots(cols=len(parts), column_widths=widths, horizontal_spacing=0.07)
    for column, losses in enumerate(parts, start=1):
        in_order = sorted(losses, key=lambda loss: int(loss.ranks[0]))
        limit = acceptable_share if column == 1 and len(ranks) > 1 else None
        for bars in _loss_bars(in_order, limit=limit, shows_legend=column == 1):
            figure.add_trace(bars, row=1, col=column)
        if column == (2 if picked.node is not None and len(parts) > 1 else 1):
            figure.add_trace(_mark(picked), row=1, col=column)
        title = "Lost with each rank" if column == 1 else "Lost with each node"
        title_column(figure, column, title_text(title, f"part of {metrics.EXPERT_TOKENS.name}"))
        figure.update_xaxes(
            title={"text": "EP rank" if column == 1 else "node", "standoff": 8}, row=1, col=column
        )
    figure.add_hline(
        y=acceptable_share, line={"color": theme.LIMIT, "width": 1.2, "dash": "dot"}, row=1, col=1
    )
    figure.update_xaxes(showgrid=False, zeroline=False)
    figure.update_xaxes(range=rank_extent(np.arange(len(ranks))), **_whole_ticks(ranks), row=1, col=1)
    figure.update_yaxes(tickformat=".1~%", rangemode="tozero", nticks=5)
    figure.update_layout(
        barmode="stack",
        bargap=0.2,
        height=_HEIGHT,
        margin=_MARGIN,
        hoverlabel={"align": "left"},
        legend=LEGEND,
        clickmode="event+select",
        uirevision="losses",
    )
    return figure


def draw_survivors(picture: LossPicture) -> go.Figure:
    """Draw what each rank computes before the loss and after it."""
    figure = go.Figure()
    gone = [bool(one) for one in picture.is_lost]
    figure.add_trace(
        go.Bar(
            x=picture.ranks,
            y=picture.load_before,
            name="before",
            marker={
                "color": [theme.LOST if one else theme.ROOM for one in gone],
                "opacity": [0.7 if one else 1.0 for one in gone],
                "line": {"width": 1, "color": theme.LIMIT},
            },
            customdata=["is lost" if one else "before the loss" for one in gone],
            hovertemplate="Rank %{x} %{customdata}: <b>%{y:.2f} ×</b> the mean rank's load<extra></extra>",
        )
    )
    figure.add_trace(
        go.Bar(
            x=picture.ranks[~picture.is_lost],
            y=picture.load_after[~picture.is_lost],
            name="after",
            width=0.46,
            marker={"color": theme.REQUEST, "line": {"width": 0}},
            customdata=picture.growth[~picture.is_lost],
            hovertemplate="Rank %{x} after the loss: <b>%{y:.2f} ×</b> the mean rank's load before, "
            "%{customdata:.2f} × its own<extra></extra>",
        )
    )
    figure.update_yaxes(rangemode="tozero", nticks=5, ticksuffix=" ×")
    _of_ranks(figure, picture, "survivors")
    title_column(figure, 1, title_text("Load of each rank", "multiples of the mean rank before the loss"))
    return figure


def draw_lost_layers(picture: LossPicture) -> go.Figure:
    """Draw how much of each layer's traffic goes to lost experts."""
    figure = go.Figure(
        go.Bar(
            x=picture.layers,
            y=picture.lost_share_by_layer,
            marker={"color": theme.LOST, "line": {"width": 0}},
            customdata=picture.lost_by_layer,
            hovertemplate="Layer %{x}: %{customdata} experts lost, <b>%{y:.2%}</b> of its assignments"
            "<extra></extra>",
        )
    )
    figure.update_xaxes(title={"text": "layer", "standoff": 8}, showgrid=False, zeroline=False)
    figure.update_yaxes(tickformat=".1~%", rangemode="tozero", nticks=5)
    figure.update_layout(
        height=_HEIGHT - 40,
        margin=_MARGIN | {"t": 36},
        bargap=0.25,
        hoverlabel={"align": "left"},
        uirevision="lost layers",
    )
    title_column(figure, 1, title_text("Lost in each layer", f"part of {metrics.EXPERT_TOKENS.name}"))
    return figure


def draw_reload(picture: LossPicture) -> go.Figure:
    """Draw the weights that each rank loads again, and the memory that is free for those without a slot."""
    figure = go.Figure()
    into_slots = picture.bytes_to_load - picture.bytes_beyond
    for name, values, color in (
        ("into slots that there are", into_slots, theme.OK),
        ("into free memory", picture.bytes_beyond, theme.POOL_COLOR[MemoryPool.REPLICATION]),
    ):
        figure.add_trace(
            go.Bar(
                x=picture.ranks,
                y=values,
                name=name,
                marker={"color": color, "line": {"width": 0}},
                customdata=[words.binary_bytes(one) for one in np.nan_to_num(values)],
                hovertemplate=f"Rank %{{x}} loads <b>%{{customdata}}</b> {name}<extra></extra>",
            )
        )
    figure.add_trace(
        go.Scatter(
            x=picture.ranks[~picture.is_lost],
            y=picture.free_bytes[~picture.is_lost],
            mode="markers",
            name="free memory",
            marker={
                "symbol": "line-ew",
                "size": max(6, min(40, 640 // max(len(picture.ranks), 1))),
                "line": {"color": theme.LIMIT, "width": 2.4},
            },
            customdata=[
                words.binary_bytes(one) for one in np.nan_to_num(picture.free_bytes[~picture.is_lost])
            ],
            hovertemplate="Rank %{x}: <b>%{customdata}</b> that no pool is meant for<extra></extra>",
        )
    )
    largest = float(np.nan_to_num(np.concatenate([picture.bytes_to_load, picture.free_bytes])).max(initial=1))
    ticks, labels = words.binary_ticks(largest)
    figure.update_yaxes(tickvals=ticks, ticktext=labels, rangemode="tozero")
    _of_ranks(figure, picture, "reload")
    figure.update_layout(barmode="stack")
    title_column(figure, 1, title_text("Weights to load again", metrics.EXPERT_WEIGHT_SIZE.name))
    return figure


def _loss_bars(losses: Sequence[Loss], *, limit: float | None, shows_legend: bool) -> list[go.Bar]:
    names = [loss.node or int(loss.ranks[0]) for loss in losses]
    what = [f"Node {loss.node}" if loss.node else f"Rank {loss.ranks[0]}" for loss in losses]
    is_too_much = [limit is not None and loss.traffic_share > limit for loss in losses]
    lost_color = [theme.BAD if one else theme.LOST for one in is_too_much]
    kinds: tuple[tuple[str, list[float], list[int], object], ...] = (
        (_LOST, [loss.traffic_share for loss in losses], [loss.lost_experts for loss in losses], lost_color),
        (
            _TAKEN,
            [loss.taken_over_share for loss in losses],
            [loss.covered_experts for loss in losses],
            theme.OK,
        ),
    )
    return [
        go.Bar(
            x=names,
            y=shares,
            name=name,
            legendgroup=name,
            showlegend=shows_legend,
            marker={"color": color, "line": {"width": 0}},
            # A picked bar is marked; the others are no less true.
            selected={"marker": {"opacity": 1}},
            unselected={"marker": {"opacity": 1}},
            customdata=[[one, words.integer(count)] for one, count in zip(what, experts, strict=True)],
            hovertemplate="%{customdata[0]}: %{customdata[1]} experts, <b>%{y:.2%}</b> of the traffic, "
            f"{name}<extra></extra>",
        )
        for name, shares, experts, color in kinds
    ]


def _mark(picked: Loss) -> go.Scatter:
    """A wedge above the loss that is told of below the figure."""
    return go.Scatter(
        x=[picked.node or int(picked.ranks[0])],
        y=[picked.traffic_share + picked.taken_over_share],
        mode="markers",
        name="told of below",
        showlegend=False,
        cliponaxis=False,
        marker={"symbol": "triangle-down", "size": 15, "color": theme.RING},
        hoverinfo="skip",
    )


def _of_ranks(figure: go.Figure, picture: LossPicture, revision: str) -> None:
    ranks = picture.ranks.tolist()
    ticks = {"tickvals": ranks} if len(ranks) <= _LABELLED else {}
    figure.update_xaxes(
        title={"text": "EP rank", "standoff": 8},
        range=rank_extent(np.arange(len(ranks))),
        showgrid=False,
        zeroline=False,
        **ticks,
    )
    figure.update_layout(
        barmode="overlay",
        bargap=0.2,
        height=_HEIGHT,
        margin=_MARGIN,
        hoverlabel={"align": "left"},
        legend=LEGEND,
        uirevision=revision,
    )


def _whole_ticks(ranks: Sequence[Loss]) -> dict[str, object]:
    """Few ranks each have a label, and nothing else has."""
    return {"tickvals": sorted(int(loss.ranks[0]) for loss in ranks)} if len(ranks) <= _LABELLED else {}
