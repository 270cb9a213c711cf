"""Where a rank's bytes are, how full its pools are, and what its caches do."""

from __future__ import annotations

from typing import Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moescope.analysis import words
from moescope.analysis.cache_state import CacheHistory, CacheStates, Occupancy
from moescope.analysis.memory import GROWING_POOLS, PoolHistory, PoolMemory
from moescope.analysis.prefix_cache import PrefixCache
from moescope.dashboard import theme
from moescope.dashboard.figures.panels import (
    LEGEND,
    PanelTitle,
    add_limit,
    add_line,
    make_panels,
    place_of,
    show_percent,
    title_text,
)
from moescope.dashboard.figures.rank_axis import add_title, rank_extent, rank_ticks
from moescope.dashboard.labels import unit_words, value_title
from moescope.schemas import metrics
from moescope.schemas.attributes import CacheResult, MemoryPool
from moescope.schemas.metrics import Metric
from moescope.schemas.records import IntArray

POOL_WORDS: Final = {
    MemoryPool.WEIGHTS: "weights",
    MemoryPool.RUNTIME: "runtime",
    MemoryPool.KDA_STATE: "KDA state",
    MemoryPool.MLA_KV_CACHE: "MLA KV cache",
    MemoryPool.REPLICATION: "replication",
    MemoryPool.TRANSFER: "transfer",
}
_BARS_HEIGHT, _ROW_HEIGHT = 260, 26
_MARGIN: Final = {"l": 104, "r": 16, "t": 52, "b": 52}


def draw_pools(memory: PoolMemory, *, full_ratio: float) -> go.Figure:
    """Draw the pools stacked by rank with their limits, below them how full each one is."""
    strip = _ROW_HEIGHT * max(len(memory.limited), 1)
    total = _BARS_HEIGHT + strip
    figure = make_subplots(
        rows=2,
        shared_xaxes=True,
        vertical_spacing=34 / total,
        row_heights=[_BARS_HEIGHT / total, strip / total],
    )
    for column, pool in enumerate(memory.pools):
        figure.add_trace(_pool_bars(memory, column, pool), row=1, col=1)
    _add_limits(figure, memory)
    figure.add_trace(_fullness(memory), row=2, col=1)
    _add_rings(figure, memory)
    ticks, labels = words.binary_ticks(memory.largest_total)
    figure.update_yaxes(tickvals=ticks, ticktext=labels, rangemode="tozero", row=1, col=1)
    figure.update_yaxes(autorange="reversed", showgrid=False, row=2, col=1)
    figure.update_xaxes(
        range=rank_extent(memory.ranks), showgrid=False, zeroline=False, **rank_ticks(memory.ranks)
    )
    figure.update_xaxes(title={"text": "EP rank", "standoff": 8}, row=2, col=1)
    add_title(figure, 1, 1, title_text("In use", value_title(metrics.MEMORY_USAGE)), above=3)
    of_limit = f"{metrics.MEMORY_USAGE.name} / {metrics.MEMORY_LIMIT.name}"
    of_limit_title = title_text("Of the limit", f"{of_limit}, ringed above {words.percent(full_ratio)}")
    add_title(figure, 2, 1, of_limit_title, above=3)
    figure.update_layout(
        barmode="stack",
        bargap=0.18,
        height=total + _MARGIN["t"] + _MARGIN["b"] + 34,
        margin=_MARGIN,
        hoverlabel={"align": "left"},
        legend=LEGEND,
        uirevision="pools",
    )
    return figure


def draw_pool_history(history: PoolHistory, *, full_ratio: float) -> go.Figure:
    """Draw how full the fullest rank's pool of each kind was."""
    title = PanelTitle("Fullest rank of each pool", f"{metrics.MEMORY_USAGE.name} / limit")
    figure = make_panels([title], columns=1, revision="pool history")
    for pool, ratio in history.fullest_ratio.items():
        if pool in GROWING_POOLS and np.isfinite(ratio).any():
            add_line(
                *(figure, (1, 1), history.times[pool], ratio),
                name=POOL_WORDS[pool],
                hover="%{y:.1%}",
                line={"color": theme.POOL_COLOR[pool], "width": 2.2},
                shows_legend=True,
            )
    show_percent(figure, (1, 1))
    add_limit(figure, (1, 1), full_ratio)
    return figure


def draw_occupancy(states: CacheStates) -> go.Figure:
    """Draw KDA state slots beside MLA KV cache blocks, by rank, each with its limit."""
    kinds = [
        ("KDA state", states.kda_slots, metrics.KDA_STATE_SLOTS, theme.KDA),
        ("MLA KV cache", states.mla_blocks, metrics.MLA_KV_CACHE_BLOCKS, theme.MLA),
    ]
    figure = make_subplots(cols=2, horizontal_spacing=0.07)
    for column, (name, occupancy, metric, color) in enumerate(kinds, start=1):
        for bars in _occupancy_bars(states.ranks, occupancy, metric, color):
            figure.add_trace(bars, row=1, col=column)
        title = value_title(metric) if occupancy.is_stored else f"{value_title(metric)}: none here"
        add_title(figure, 1, column, title_text(name, title), color=color, above=3)
    figure.update_xaxes(
        title={"text": "EP rank", "standoff": 8},
        range=rank_extent(states.ranks),
        showgrid=False,
        zeroline=False,
        **rank_ticks(states.ranks),
    )
    figure.update_yaxes(rangemode="tozero", nticks=5)
    figure.update_layout(
        barmode="overlay",
        bargap=0.18,
        height=300,
        margin=_MARGIN | {"l": 64},
        hoverlabel={"align": "left"},
        showlegend=False,
        uirevision="occupancy",
    )
    return figure


def draw_cache_history(history: CacheHistory) -> go.Figure:
    """Draw how full both caches were, and how many KDA slots were copied."""
    titles = [
        PanelTitle("KDA state, fullest rank", f"{metrics.KDA_STATE_SLOTS.name} / limit", theme.KDA),
        PanelTitle("MLA KV cache, fullest rank", f"{metrics.MLA_KV_CACHE_BLOCKS.name} / limit", theme.MLA),
        PanelTitle("KDA state copied", f"{metrics.KDA_STATE_COPIES.name}, copies a second", theme.KDA),
    ]
    figure = make_panels(titles, columns=3, revision="caches")
    for index, (ratio, color) in enumerate(((history.kda_ratio, theme.KDA), (history.mla_ratio, theme.MLA))):
        where = place_of(index, 3)
        add_line(
            *(figure, where, history.times, ratio),
            name="of the limit",
            hover="%{y:.1%}",
            line={"color": color, "width": 2.2},
        )
        show_percent(figure, where)
    for name, values, dash in (
        ("copy on write", history.copies_on_write, "solid"),
        ("checkpoint", history.checkpoint_copies, "dash"),
    ):
        add_line(
            *(figure, place_of(2, 3), history.times, values),
            name=name,
            hover="%{y:,.2f} a second,",
            line={"color": theme.KDA, "width": 2, "dash": dash},
            shows_legend=True,
        )
    return figure


def draw_prefix_cache(cache: PrefixCache) -> go.Figure:
    """Draw what the prefix cache answered, and the share that it found."""
    titles = [
        PanelTitle("Prompt tokens", f"{metrics.PREFIX_CACHE_TOKENS.name}, tokens a second"),
        PanelTitle("Found", f"{metrics.PREFIX_CACHE_TOKENS.name}, share"),
    ]
    figure = make_panels(titles, columns=2, revision="prefix cache")
    for result, values in cache.per_second.items():
        add_line(
            *(figure, (1, 1), cache.times, values),
            name=result.value.replace("_", " "),
            hover="%{y:,.1f} a second,",
            line={"color": theme.CACHE_COLOR[result], "width": 1},
            shows_legend=True,
            stack="tokens",
        )
    add_line(
        *(figure, (1, 2), cache.times, cache.ratio_over_time),
        name="found",
        hover="%{y:.1%}",
        line={"color": theme.CACHE_COLOR[CacheResult.HIT], "width": 2.2},
    )
    show_percent(figure, (1, 2))
    return figure


def _pool_bars(memory: PoolMemory, column: int, pool: MemoryPool) -> go.Bar:
    return go.Bar(
        x=memory.ranks,
        y=memory.used_bytes[:, column],
        name=POOL_WORDS[pool],
        marker={"color": theme.POOL_COLOR[pool], "line": {"width": 0}},
        customdata=[memory.describe(row, column) for row in range(len(memory.ranks))],
        hovertemplate=f"Rank %{{x}}, {POOL_WORDS[pool]}: <b>%{{customdata}}</b><extra></extra>",
    )


def _add_limits(figure: go.Figure, memory: PoolMemory) -> None:
    """A tick at the sum of the limits of each rank."""
    figure.add_trace(
        go.Scatter(
            x=memory.ranks,
            y=memory.total_limits,
            mode="markers",
            name="sum of the limits",
            marker={
                "symbol": "line-ew",
                "size": max(6, min(40, 640 // max(len(memory.ranks), 1))),
                "line": {"color": theme.LIMIT, "width": 2.4},
            },
            customdata=[words.binary_bytes(one) for one in memory.total_limits],
            hovertemplate="Rank %{x}: limits of <b>%{customdata}</b> in all<extra></extra>",
        ),
        row=1,
        col=1,
    )


def _fullness(memory: PoolMemory) -> go.Heatmap:
    colors = theme.SEQUENTIAL[:-1]  # the strongest is too near to the ring
    return go.Heatmap(
        z=memory.limited_ratio,
        x=memory.ranks,
        y=[POOL_WORDS[pool] for pool in memory.limited],
        zmin=0,
        zmax=1,
        colorscale=[[step / (len(colors) - 1), color] for step, color in enumerate(colors)],
        showscale=False,
        xgap=1,
        ygap=2,
        hovertemplate="Rank %{x}, %{y}: <b>%{z:.1%}</b> of its limit<extra></extra>",
    )


def _add_rings(figure: go.Figure, memory: PoolMemory) -> None:
    figure.add_trace(
        go.Scatter(
            x=[one.rank for one in memory.full],
            y=[POOL_WORDS[one.pool] for one in memory.full],
            mode="markers",
            name="full",
            showlegend=False,
            marker={
                "symbol": "circle-open",
                "size": 15,
                "color": theme.RING,
                "line": {"width": 2.4},
            },
            customdata=[words.percent(one.ratio) for one in memory.full],
            hovertemplate="Rank %{x}, %{y}: full, <b>%{customdata}</b> of its limit<extra></extra>",
        ),
        row=2,
        col=1,
    )


def _occupancy_bars(
    ranks: IntArray, occupancy: Occupancy, metric: Metric, color: str
) -> tuple[go.Bar, go.Bar]:
    """What exists, and in front of it what is in use."""
    units = unit_words(metric)
    return (
        go.Bar(
            x=ranks,
            y=occupancy.limit,
            marker={"color": theme.ROOM, "line": {"width": 1, "color": theme.LIMIT}},
            hovertemplate=f"Rank %{{x}}: %{{y:,.0f}} {units} exist<extra></extra>",
        ),
        go.Bar(
            x=ranks,
            y=occupancy.used,
            marker={"color": color, "line": {"width": 0}},
            customdata=occupancy.ratio,
            hovertemplate=f"Rank %{{x}}: <b>%{{y:,.0f}}</b> {units}, %{{customdata:.1%}}<extra></extra>",
        ),
    )
