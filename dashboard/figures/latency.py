"""Latency: what requests feel, and what the engine does meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Final

import plotly.graph_objects as go

from moescope.analysis.dispatch import pick_dispatch_times
from moescope.analysis.distribution import Distribution
from moescope.analysis.latency_report import LatencyAnswer
from moescope.analysis.requests import RequestLoad, rate_goodput
from moescope.analysis.steps import pick_steps
from moescope.dashboard import theme
from moescope.dashboard.figures.panels import (
    PanelTitle,
    add_limit,
    add_line,
    add_percentiles,
    make_panels,
    place_of,
    show_percent,
    show_seconds,
)
from moescope.dashboard.labels import PHASE_LABEL, value_title
from moescope.schemas import metrics
from moescope.schemas.attributes import DispatchStage, Phase
from moescope.schemas.metrics import Metric
from moescope.schemas.settings import Settings

REQUEST_WORDS: Final[Mapping[Metric, str]] = {
    metrics.TIME_TO_FIRST_TOKEN: "TTFT",
    metrics.TIME_PER_OUTPUT_TOKEN: "TPOT",
    metrics.INTER_TOKEN_LATENCY: "ITL",
    metrics.REQUEST_QUEUE_DURATION: "Queue",
    metrics.REQUEST_DURATION: "End to end",
}
_SECONDS: Final = "%{y:.3s}s"
_COLUMNS: Final = 3


def draw_request_latency(answer: LatencyAnswer, settings: Settings) -> go.Figure:
    """Draw every latency of requests in a panel of its own, and the share of good ones."""
    shown, goodput = answer.requests, answer.goodput
    limits = {
        metrics.TIME_TO_FIRST_TOKEN: settings.contract_ttft_seconds,
        metrics.TIME_PER_OUTPUT_TOKEN: settings.contract_tpot_seconds,
    }
    titles = [PanelTitle(REQUEST_WORDS[metric], value_title(metric)) for metric in shown]
    has_goodput = goodput.good_share is not None
    if has_goodput:
        titles.append(PanelTitle("Good requests", f"{metrics.REQUESTS_FINISHED.name}, share"))
    columns = min(_COLUMNS, max(len(titles), 1))
    figure = make_panels(titles, columns=columns, revision="requests")
    for index, (metric, distribution) in enumerate(shown.items()):
        where = place_of(index, columns)
        add_percentiles(
            *(figure, where, distribution),
            color=theme.REQUEST,
            hover=_SECONDS,
            shows_legend=index == 0,
            limit=limits.get(metric),
        )
        show_seconds(figure, where)
    if has_goodput:
        where = place_of(len(shown), columns)
        add_line(
            *(figure, where, goodput.steps.times, goodput.good_share_over_time),
            name="kept the contract",
            hover="%{y:.1%}",
            line={"color": theme.GOOD, "width": 2.2},
        )
        show_percent(figure, where)
        add_limit(figure, where, 1 - settings.contract_missed_share)
    return figure


def draw_goodput(answer: LatencyAnswer) -> go.Figure:
    """Draw finished requests and output tokens a second: all of them, and those that kept the contract."""
    steps = answer.goodput.steps
    rates = rate_goodput(steps, answer.span)
    titles = [
        PanelTitle("Finished requests", f"{metrics.REQUESTS_FINISHED.name}, requests a second"),
        PanelTitle("Output tokens", f"{metrics.REQUEST_OUTPUT_TOKENS.name}, tokens a second"),
    ]
    figure = make_panels(titles, columns=2, revision="goodput")
    for index, (whole, good) in enumerate(
        ((rates.requests, rates.good_requests), (rates.output_tokens, rates.good_tokens))
    ):
        where = place_of(index, 2)
        for name, values, line in (
            ("all", whole, {"color": theme.MUTED, "width": 2, "dash": "dash"}),
            ("kept the contract", good, {"color": theme.GOOD, "width": 2.4}),
        ):
            add_line(
                *(figure, where, steps.times, values),
                name=name,
                hover="%{y:,.3s} a second",
                line=line,
                shows_legend=index == 0,
            )
    figure.update_yaxes(tickformat="~s", row=1, col=2)
    return figure


def draw_inside(answer: LatencyAnswer) -> go.Figure:
    """Draw forward passes, dispatch and combine: a row for each phase, a column for each measurement."""
    distributions = answer.distributions
    steps, tokens = (pick_steps(distributions, one) for one in (metrics.STEP_DURATION, metrics.STEP_TOKENS))
    calls = pick_dispatch_times(distributions)
    columns: list[tuple[str, Metric, Mapping[Phase, Distribution]]] = [
        ("step", metrics.STEP_DURATION, steps),
        *(
            (
                stage.value,
                metrics.DISPATCH_DURATION,
                {at: one for (its, at), one in calls.items() if its is stage},
            )
            for stage in DispatchStage
        ),
        ("step", metrics.STEP_TOKENS, tokens),
    ]
    columns = [column for column in columns if column[2]]
    phases = [phase for phase in theme.PHASE_COLOR if any(phase in by_phase for *_, by_phase in columns)]
    titles = [
        PanelTitle(f"{PHASE_LABEL[phase]} {word}", value_title(metric), theme.PHASE_COLOR[phase])
        if phase in by_phase
        else None
        for phase in phases
        for word, metric, by_phase in columns
    ]
    figure = make_panels(titles, columns=len(columns), revision="inside")
    first = next((index for index, title in enumerate(titles) if title is not None), 0)
    for index, (phase, (_, metric, by_phase)) in enumerate(itertools.product(phases, columns)):
        if phase not in by_phase:
            continue
        where, is_time = place_of(index, len(columns)), metric is not metrics.STEP_TOKENS
        add_percentiles(
            *(figure, where, by_phase[phase]),
            color=theme.PHASE_COLOR[phase],
            hover=_SECONDS if is_time else "%{y:,.0f}",
            shows_legend=index == first,
        )
        if is_time:
            show_seconds(figure, where)
    return figure


def draw_request_load(load: RequestLoad) -> go.Figure:
    """Draw how many requests are running and waiting."""
    titles = [
        PanelTitle("Running", value_title(metrics.REQUESTS_RUNNING)),
        PanelTitle("Waiting", value_title(metrics.REQUESTS_WAITING)),
    ]
    figure = make_panels(titles, columns=2, revision="load")
    for index, (name, values, color) in enumerate(
        (("running", load.running, theme.REQUEST), ("waiting", load.waiting, theme.WAITING))
    ):
        add_line(
            *(figure, place_of(index, 2), load.times, values),
            name=name,
            hover="%{y:,.1f}",
            line={"color": color, "width": 2.2},
        )
    return figure
