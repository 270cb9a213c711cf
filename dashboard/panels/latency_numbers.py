"""The latencies and the goodput of a deployment in one row each."""

from __future__ import annotations

import streamlit as st

from moescope.analysis import words
from moescope.analysis.latency_report import LatencyAnswer, amount
from moescope.analysis.requests import COST_FORMULA
from moescope.dashboard.figures.latency import REQUEST_WORDS
from moescope.schemas import metrics
from moescope.schemas.settings import Settings

_UNKNOWN = "–"


def show_request_numbers(answer: LatencyAnswer) -> None:
    """Draw the median of each latency, with what the slowest hundredth sees below it."""
    with st.container(border=True, gap="xsmall"):
        columns = st.columns(len(REQUEST_WORDS))
        for column, (metric, name) in zip(columns, REQUEST_WORDS.items(), strict=True):
            distribution = answer.requests.get(metric)
            with column:
                st.metric(
                    f"{name}, p50",
                    _UNKNOWN if distribution is None else amount(metric, distribution.whole.p50),
                    help=f"`{metric.name}`: {metric.description}",
                )
                if distribution is not None:
                    whole = distribution.whole
                    more = "over " if whole.is_capped else ""
                    st.caption(f"p99 {more}{amount(metric, whole.p99)}")


def show_goodput(answer: LatencyAnswer, settings: Settings) -> None:
    """Draw how much of the work was good, and what it cost."""
    good = answer.goodput
    with st.container(border=True, gap="xsmall"):
        share, tokens, rate, cost, load = st.columns(5)
        share.metric(
            "Good requests",
            _UNKNOWN if good.good_share is None else words.percent(good.good_share),
            help=f"`{metrics.REQUESTS_FINISHED.name}`: {metrics.REQUESTS_FINISHED.description}",
        )
        share.caption(_describe_verdict(answer, settings))
        tokens.metric(
            "Good tokens",
            _UNKNOWN if good.good_token_share is None else words.percent(good.good_token_share),
            help=f"`{metrics.REQUEST_OUTPUT_TOKENS.name}`: {metrics.REQUEST_OUTPUT_TOKENS.description}",
        )
        tokens.caption(f"of {words.compact(good.output_tokens)} output tokens")
        rate.metric(
            "Goodput",
            words.compact(good.good_tokens_per_second),
            help="Output tokens of requests that kept the contract, per second of the window.",
        )
        rate.caption(f"tokens a second, {words.count(good.ranks, 'rank')}")
        _show_cost(cost, answer, settings)
        load.metric(
            "Running",
            words.compact(float(answer.load.running[-1])) if len(answer.load.running) else _UNKNOWN,
            help=f"`{metrics.REQUESTS_RUNNING.name}`: {metrics.REQUESTS_RUNNING.description}",
        )
        if len(answer.load.waiting):
            load.caption(f"{words.compact(float(answer.load.waiting[-1]))} waiting")


def _show_cost(column: st.delta_generator.DeltaGenerator, answer: LatencyAnswer, settings: Settings) -> None:
    cost = answer.goodput.cost_per_thousand
    column.metric(
        "Cost per 1000",
        _UNKNOWN if cost is None else f"{cost:.4g}",
        help=f"{COST_FORMULA}, with `MOESCOPE_RANK_HOUR_PRICE`.",
    )
    if settings.rank_hour_price <= 0:
        column.caption("no price is set")
    elif not answer.goodput.good_tokens:
        column.caption("no good tokens")
    else:
        column.caption("no rank reported" if cost is None else "good tokens")


def _describe_verdict(answer: LatencyAnswer, settings: Settings) -> str:
    good = answer.goodput
    if not good.requests:
        return "none finished"
    of = f"of {words.compact(good.requests)}"
    if good.misses_contract:
        return f":red[:material/error:] {of}, want {words.percent(1 - settings.contract_missed_share)}"
    return f"{of}; the contract holds"
