"""The numbers that people look at first."""

from __future__ import annotations

import streamlit as st

from moescope.analysis import words
from moescope.analysis.imbalance import BALANCEDNESS_FORMULA, RATIO_FORMULA, Verdict
from moescope.analysis.overview import PhaseSummary
from moescope.analysis.quality import Quality
from moescope.dashboard.labels import PHASE_LABEL
from moescope.schemas import metrics
from moescope.schemas.settings import Settings

_UNKNOWN = "–"


def show_phase(summary: PhaseSummary, settings: Settings) -> None:
    """Draw one phase's numbers."""
    with st.container(border=True, gap="xsmall", height="stretch"):
        st.subheader(PHASE_LABEL[summary.phase], anchor=False)
        left, middle, right = st.columns(3)
        with left:
            _show_tokens(summary)
        with middle:
            _show_worst_layer(summary, settings)
        with right:
            _show_hot_experts(summary, settings)


def show_telemetry(quality: Quality) -> None:
    """Draw whether the numbers can be believed."""
    with st.container(border=True, gap="xsmall", height="stretch"):
        st.subheader("Telemetry", anchor=False)
        left, middle, right = st.columns(3)
        reporting, silent = len(quality.reporting), len(quality.silent)
        left.metric(
            "Ranks that report",
            f"{reporting} of {reporting + silent}",
            help="The newest engine process of every rank that sent a window within the raw retention.",
        )
        lag = quality.lag_seconds
        middle.metric(
            "Newest window",
            _UNKNOWN if lag is None else f"{words.duration(max(lag, 0))} ago",
            help="Time since the end of the newest stored window.",
        )
        wrong = len(quality.not_conserved) + len(quality.without_counts)
        right.metric(
            "Counts add up",
            _UNKNOWN if not quality.instances else "yes" if not wrong else f"not on {wrong}",
            help="Assignments counted at the router equal the scheduled tokens × top-k × MoE layers, "
            "for every process.",
        )


def _show_tokens(summary: PhaseSummary) -> None:
    rate = summary.tokens_per_second
    recent = summary.recent_tokens_per_second
    st.metric(
        "Tokens a second",
        _UNKNOWN if rate is None else words.compact(rate),
        chart_data=recent.tolist() if len(recent) > 1 else None,
        chart_type="area",
        help=f"`{metrics.TOKENS.name}`: {metrics.TOKENS.description}",
    )


def _show_worst_layer(summary: PhaseSummary, settings: Settings) -> None:
    worst = summary.worst_layer
    st.metric(
        "Worst layer",
        _UNKNOWN if worst is None else f"{worst.ratio:.2f} ×",
        help=f"{RATIO_FORMULA}; acceptable up to {settings.imbalance_ratio:g} net of noise."
        + (f" {BALANCEDNESS_FORMULA}: {worst.balancedness:.2f}." if worst else ""),
    )
    if worst is None:
        st.caption("no placement, or no tokens")
    elif worst.verdict is Verdict.TOO_LITTLE_DATA:
        st.caption(f"layer {worst.layer}; too little data to judge")
    else:
        st.caption(f"layer {worst.layer}; {summary.imbalanced_layers} of {summary.judged_layers} imbalanced")


def _show_hot_experts(summary: PhaseSummary, settings: Settings) -> None:
    st.metric(
        "Harmful hot experts",
        words.integer(summary.harmful_experts),
        help=f"Certainly above {settings.hot_expert_ratio:g} × their layer's median, and taking more than "
        f"{words.percent(settings.hot_expert_capacity_share)} of a rank or causing an imbalance.",
    )
    st.caption(f"of {words.integer(summary.hot_experts)} hot")
