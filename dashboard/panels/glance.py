"""How a deployment does, in one row: what users feel, what is kept, how even the load is, what is left."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from moescope.analysis import words
from moescope.analysis.headroom import Headroom
from moescope.analysis.imbalance import RATIO_FORMULA
from moescope.analysis.latency_report import LatencyAnswer, amount
from moescope.analysis.overview import PhaseSummary, find_most_imbalanced
from moescope.dashboard.links import EXPERT_LOAD, LATENCY, MEMORY, Page, link_to
from moescope.dashboard.view import View, link_params
from moescope.schemas import metrics
from moescope.schemas.metrics import Metric
from moescope.schemas.settings import Settings

_UNKNOWN = "–"


def show_glance(
    view: View,
    settings: Settings,
    latency: LatencyAnswer,
    summaries: Sequence[PhaseSummary],
    headroom: Headroom | None,
) -> None:
    """Draw five numbers, each with a way to its page."""
    with st.container(border=True, gap="xsmall"):
        ttft, tpot, good, imbalance, left = st.columns(5)
        with ttft:
            _show_latency("TTFT, p99", metrics.TIME_TO_FIRST_TOKEN, latency, settings.contract_ttft_seconds)
            _link(view, LATENCY)
        with tpot:
            _show_latency("TPOT, p99", metrics.TIME_PER_OUTPUT_TOKEN, latency, settings.contract_tpot_seconds)
            _link(view, LATENCY)
        with good:
            _show_goodput(latency, settings)
            _link(view, LATENCY)
        with imbalance:
            _show_imbalance(view, summaries, settings)
        with left:
            _show_headroom(headroom, settings)
            _link(view, MEMORY)


def _show_latency(label: str, metric: Metric, latency: LatencyAnswer, limit: float) -> None:
    distribution = latency.requests.get(metric)
    help_text = f"`{metric.name}`: {metric.description}"
    if distribution is None:
        st.metric(label, _UNKNOWN, help=help_text)
        st.caption("no request finished")
        return
    whole = distribution.whole
    more = "> " if whole.is_capped else ""
    st.metric(label, f"{more}{amount(metric, whole.p99)}", help=help_text)
    st.caption(f"p50 {amount(metric, whole.p50)}, limit {words.seconds(limit)}")


def _show_goodput(latency: LatencyAnswer, settings: Settings) -> None:
    good = latency.goodput
    st.metric(
        "Goodput",
        _UNKNOWN if good.good_share is None else words.percent(good.good_share),
        help="Share of the finished requests that kept the latency contract. "
        f"`{metrics.REQUESTS_FINISHED.name}`: {metrics.REQUESTS_FINISHED.description}",
    )
    if good.good_share is None:
        st.caption("no request finished")
        return
    rate = f"{words.compact(good.good_tokens_per_second)} good tokens a second"
    want = words.percent(1 - settings.contract_missed_share)
    st.caption(f":red[:material/error:] want {want}; {rate}" if good.misses_contract else rate)


def _show_imbalance(view: View, summaries: Sequence[PhaseSummary], settings: Settings) -> None:
    found = find_most_imbalanced(summaries)
    st.metric(
        "Imbalance",
        _UNKNOWN if found is None else f"{found[1].ratio:.2f} ×",
        help=f"Of the worst layer: {RATIO_FORMULA}; fine up to {settings.imbalance_ratio:g} net of noise.",
    )
    if found is None:
        st.caption("no placement, or no tokens")
        _link(view, EXPERT_LOAD)
        return
    phase, worst = found
    st.caption(f"layer {worst.layer}, {phase.value}; {worst.verdict.value}")
    params = link_params(view, ep_group=worst.ep_group, phase=phase, layer=worst.layer)
    link_to(EXPERT_LOAD, EXPERT_LOAD.title, params)


def _show_headroom(headroom: Headroom | None, settings: Settings) -> None:
    st.metric(
        "Headroom",
        _UNKNOWN if headroom is None else words.percent(headroom.free_share),
        help="Free share of the fullest pool that fills with work, over all ranks. Full is above "
        f"{words.percent(settings.memory_full_ratio)} of the limit.",
    )
    if headroom is None:
        st.caption("no rank reported its pools")
        return
    mark = ":red[:material/error:] " if headroom.is_full else ""
    st.caption(f"{mark}{headroom.describe()}")


def _link(view: View, page: Page) -> None:
    link_to(page, page.title, link_params(view))
