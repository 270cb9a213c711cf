"""What the engines computed, and what their GPUs say."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moescope.analysis import words
from moescope.analysis.computed_tokens import ComputedTokens, TokenKind
from moescope.analysis.gpus import Gpu
from moescope.dashboard import theme
from moescope.dashboard.figures.panels import PanelTitle, add_line, make_panels, place_of, title_text
from moescope.dashboard.figures.rank_axis import add_title
from moescope.dashboard.labels import PHASE_LABEL
from moescope.schemas import metrics
from moescope.schemas.attributes import Excluded, Phase


def draw_tokens(tokens: ComputedTokens) -> go.Figure:
    """Draw the rows of the load by phase, and beside them those that are excluded."""
    titles = [
        PanelTitle("Part of the load", f"{metrics.TOKENS.name}, tokens a second"),
        PanelTitle("Excluded", f"{metrics.TOKENS.name}, tokens a second"),
    ]
    figure = make_panels(titles, columns=2, revision="tokens")
    for kind, values in tokens.per_second.items():
        is_load = kind.excluded is Excluded.NONE
        add_line(
            *(figure, place_of(0 if is_load else 1, 2), tokens.times, values),
            name=_describe(kind),
            hover="%{y:,.0f} a second,",
            line={"color": _color(kind), "width": 2.2, **_dash(kind)},
            shows_legend=True,
        )
    return figure


def draw_gpus(gpus: Sequence[Gpu]) -> go.Figure:
    """Draw how busy and how full each GPU is, and what goes over its links."""
    has_groups = len({gpu.ep_group for gpu in gpus}) > 1
    names = [f"{gpu.ep_group}/{gpu.ep_rank}" if has_groups else str(gpu.ep_rank) for gpu in gpus]
    where = [f"{gpu.host} {gpu.gpu}" for gpu in gpus]
    series = (
        (
            "Busy",
            metrics.GPU_UTILIZATION,
            "share of the time",
            [gpu.utilization for gpu in gpus],
            "%{y:.0%} busy",
        ),
        (
            "Memory",
            metrics.GPU_MEMORY_USAGE,
            "share of the limit",
            [gpu.memory_ratio for gpu in gpus],
            "%{y:.1%} in use",
        ),
        (
            "Links",
            metrics.GPU_IO,
            "sent, bytes a second",
            [gpu.sent_bytes_per_second for gpu in gpus],
            "%{y:.3s}B a second",
        ),
    )
    figure = make_subplots(cols=len(series), horizontal_spacing=0.055)
    for column, (name, metric, unit, values, hover) in enumerate(series, start=1):
        figure.add_trace(
            go.Bar(
                x=names,
                y=values,
                marker={"color": theme.OK, "line": {"width": 0}},
                customdata=where,
                hovertemplate=f"Rank %{{x}}, %{{customdata}}: <b>{hover}</b><extra></extra>",
            ),
            row=1,
            col=column,
        )
        add_title(figure, 1, column, title_text(name, f"{metric.name}, {unit}"), above=3)
        is_share = column < len(series)
        figure.update_yaxes(
            **(
                {"tickformat": ".0%", "range": [0, 1.04]}
                if is_share
                else {"tickformat": "~s", "ticksuffix": "B"}
            ),
            nticks=5,
            row=1,
            col=column,
        )
    figure.update_xaxes(
        title={"text": "EP group / rank" if has_groups else "EP rank", "standoff": 8},
        type="category",
        nticks=10,
        tickangle=0,
    )
    figure.update_layout(
        height=270,
        margin={"l": 56, "r": 16, "t": 40, "b": 56},
        showlegend=False,
        bargap=0.2,
        hoverlabel={"align": "left"},
        uirevision="gpus",
    )
    return figure


def describe_totals(tokens: ComputedTokens) -> str:
    """What was computed in the window, in one sentence."""
    parts = [f"{words.compact(total)} {_describe(kind)}" for kind, total in tokens.totals.items()]
    share = tokens.excluded_share
    left_out = "" if share is None else f" {words.percent(share)} of all rows are no part of the load."
    return f"{', '.join(parts)}.{left_out}"


def _describe(kind: TokenKind) -> str:
    phase = PHASE_LABEL[kind.phase].lower() if kind.phase else ""
    reason = "" if kind.excluded is Excluded.NONE else kind.excluded.value
    return f"{phase} {reason}".strip()


def _color(kind: TokenKind) -> str:
    if kind.excluded is not Excluded.NONE:
        return theme.EXCLUDED_COLOR[kind.excluded]
    return theme.PHASE_COLOR[kind.phase] if kind.phase else theme.MUTED


def _dash(kind: TokenKind) -> dict[str, object]:
    """Excluded rows of prefill and decode share a colour: the dash tells them apart."""
    is_prefill = kind.excluded is not Excluded.NONE and kind.phase is Phase.PREFILL
    return {"dash": "dash"} if is_prefill else {}
