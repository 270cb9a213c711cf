"""One expert: what it is doing now, and how that came about."""

from __future__ import annotations

import streamlit as st

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.expert_costs import describe_costs
from moescope.analysis.expert_facts import ExpertFacts, describe_expert
from moescope.analysis.span import span_between
from moescope.dashboard import loaders
from moescope.dashboard.export import show_figure
from moescope.dashboard.figures.expert_history import draw_expert_history, draw_expert_latency

_UNKNOWN = "–"


def show_expert(assessment: LoadAssessment, layer: int, expert: int) -> None:
    """Draw an expert's facts and its history."""
    facts = describe_expert(assessment, layer, expert)
    if facts is None:
        st.info(f"The model has no expert {expert} in layer {layer}.", icon=":material/info:")
        return
    phase = assessment.window.scope.phase
    st.subheader(f"Expert {expert} of layer {layer}", anchor=False)
    st.markdown(f"{_judge(facts, phase.value)} {_describe_copies(facts)}")
    _show_facts(facts)
    history = loaders.load_expert_history(assessment, layer, expert)
    if history is None or not any(len(series.times) for series in history.series.values()):
        st.caption("Its history starts with the first whole minute.")
    else:
        show_figure(
            draw_expert_history(history, phase),
            key="expert_history",
            alt=f"Assignments a minute of expert {expert} of layer {layer}, with the layer's median expert.",
        )
    _show_costs(assessment, layer, expert)


def _show_costs(assessment: LoadAssessment, layer: int, expert: int) -> None:
    """What is stored beside the load: weights, failovers and time."""
    window = assessment.window
    span = span_between(window.scope.service, window.scope.ep_group, window.start_ms, window.end_ms)
    costs = loaders.load_expert_costs(span, layer, expert)
    sentences = describe_costs(costs)
    if sentences:
        st.markdown(sentences)
    if costs.latency:
        show_figure(
            draw_expert_latency(costs.latency, window.scope.phase),
            key="expert_latency",
            alt=f"Time that expert {expert} of layer {layer} takes for a token, by phase.",
        )


def _judge(facts: ExpertFacts, phase: str) -> str:
    if facts.is_harmful:
        return f":red-badge[:material/error: harmful] It is hot in {phase}, and that slows its rank."
    if facts.is_hot:
        return f":gray-badge[hot] Certainly above its layer's usual in {phase}; no rank suffers from it."
    return f":gray-badge[usual] Nothing stands out in {phase}."


def _describe_copies(facts: ExpertFacts) -> str:
    if not facts.copies:
        return "Where its copies are is unknown."
    ranks = words.listed("rank", facts.ranks.tolist()).lower()
    return f"{words.copies(facts.copies).capitalize()}, on {ranks}."


def _show_facts(facts: ExpertFacts) -> None:
    columns = st.columns(3)
    columns[0].metric("A minute", words.compact(facts.per_minute), help="Assignments a minute.")
    columns[1].metric(
        "Of the median", f"{facts.times_median:.1f} ×", help="Multiple of the layer's median expert."
    )
    share = facts.capacity_share
    columns[2].metric(
        "Of a rank",
        _UNKNOWN if share is None else words.percent(share),
        help="What one copy takes of a rank's even share of the layer.",
    )
