"""Who has most to do, who is late and why, and who waits for whom."""

from __future__ import annotations

import streamlit as st

from moescope.analysis import words
from moescope.analysis.activated_experts_report import describe_activated_experts
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.dispatch import CYCLES_WORDS
from moescope.analysis.rank_facts import list_rank_facts
from moescope.analysis.rank_load import RankWork, describe_rank_work, measure_rank_work
from moescope.analysis.rank_nodes import list_node_blocks
from moescope.analysis.rank_steps import RankSteps
from moescope.analysis.traffic_report import TrafficAnswer
from moescope.dashboard import loaders, loaders_ranks, missing
from moescope.dashboard.chart_events import watch_chart
from moescope.dashboard.export import show_figure
from moescope.dashboard.figures.rank_times import draw_rank_times
from moescope.dashboard.figures.ranks import draw_activated_experts, draw_rank_work
from moescope.dashboard.figures.waits import draw_waits
from moescope.dashboard.labels import time_label
from moescope.dashboard.panels.rank_detail import choose_rank, pick_rank, show_rank
from moescope.dashboard.panels.rank_table import show_rank_table
from moescope.dashboard.panels.stragglers import show_stragglers
from moescope.dashboard.states import run_guarded, show_empty_store
from moescope.dashboard.view import (
    View,
    choose_any_phase,
    choose_named_group,
    choose_service,
    choose_window,
    filter_row,
    find_deployment,
    find_scope,
)
from moescope.schemas.attributes import Phase


def _render() -> None:
    deployments = loaders.load_deployments()
    if not deployments:
        show_empty_store("telemetry", loaders.load_deployments)
        return
    with filter_row():
        service = choose_service(deployments)
        ep_group = choose_named_group(find_deployment(deployments, service).ep_groups)
        phase = choose_any_phase()
        view = choose_window(deployments, service)

    @st.fragment(run_every=view.refresh_seconds)
    def refreshed() -> None:
        run_guarded(lambda: _show(view, ep_group, phase))

    refreshed()


def _show(view: View, ep_group: str, phase: Phase) -> None:
    span = view.cover(find_deployment(loaders.load_deployments(), view.service), ep_group)
    st.caption(f"{words.duration(span.seconds)} to {time_label(span.end)}.")
    assessment = _assess(view, ep_group, phase)
    work = None if assessment is None else measure_rank_work(assessment, loaders.get_settings())
    steps = loaders_ranks.load_rank_steps(span).get(phase)
    stragglers = loaders_ranks.load_rank_stragglers(span)
    traffic = loaders.load_traffic(span)
    facts = list_rank_facts(work, steps, stragglers)
    show_stragglers(stragglers)
    rank = choose_rank(facts)
    if rank is not None:
        show_rank(view, rank, facts, traffic, assessment=assessment, work=work, steps=steps)
    _show_work(assessment, work, rank)
    _show_times(assessment, work, steps, rank)
    show_rank_table(facts)
    _show_waits(traffic)
    if assessment is not None and work is not None:
        _show_activated(assessment, work, rank)


def _assess(view: View, ep_group: str, phase: Phase) -> LoadAssessment | None:
    """What is known of the load; None where nothing of this phase is stored."""
    scope = find_scope(loaders.load_scopes(), view.service, ep_group, phase)
    return None if scope is None else loaders.load_assessment(scope, view.window_seconds, view.end_ms)


def _show_work(assessment: LoadAssessment | None, work: RankWork | None, rank: int | None) -> None:
    with st.container(border=True, gap="xsmall"):
        st.subheader("Work by rank", anchor=False)
        if assessment is None or work is None or not len(work.layers):
            missing.show_missing(missing.RANK_LOAD)
            return
        st.caption(f"{describe_rank_work(work)} Click a cell to look at its rank.")
        show_figure(
            draw_rank_work(work, acceptable_ratio=loaders.get_settings().imbalance_ratio, picked=rank),
            key="rank_work",
            alt="Work of each rank over all layers with its worst layer, and below it layer by layer.",
        )
        scope = assessment.window.scope
        watch_chart(
            "rank_work",
            on_click=lambda _layer, clicked: pick_rank(clicked),
            subject=f"{scope.service}/{scope.ep_group}",
        )


def _show_times(
    assessment: LoadAssessment | None, work: RankWork | None, steps: RankSteps | None, rank: int | None
) -> None:
    with st.container(border=True, gap="xsmall"):
        st.subheader("Over time", anchor=False)
        if steps is None:
            missing.show_missing(missing.RANK_TIMES)
        history = None
        if assessment is not None and work is not None:
            history = loaders_ranks.load_rank_history(assessment)
            history = history if len(history.ranks) else None
        if steps is None and history is None:
            return
        st.caption(
            "A row is a rank. Ranks that work in lock step have passes of equal length: the late one makes "
            "all of them wait, which the waits below tell apart."
        )
        show_figure(
            draw_rank_times(history, steps, picked=rank),
            key="rank_times",
            alt="Work of each rank over time, and how long its forward passes took.",
        )


def _show_waits(answer: TrafficAnswer) -> None:
    with st.container(border=True, gap="xsmall"):
        st.subheader("Who waits for whom", anchor=False)
        if not answer.waits:
            missing.show_missing(missing.WAITS)
            return
        st.caption("The row waits for the column. A bright column is a late rank; it waits least itself.")
        nodes = list_node_blocks(next(iter(answer.waits.values())).ranks, answer.host_of_rank)
        if not all(waits.is_time for waits in answer.waits.values()):
            st.caption(CYCLES_WORDS)
        show_figure(
            draw_waits(answer.waits, answer.span.seconds, nodes),
            key="wait_matrix",
            alt="How long each rank waited for each other one in dispatch and combine.",
        )


def _show_activated(assessment: LoadAssessment, work: RankWork, rank: int | None) -> None:
    answer = loaders_ranks.load_activated(assessment)
    sentence = describe_activated_experts(answer)
    if not sentence:
        return
    with st.container(border=True, gap="xsmall"):
        st.subheader("Experts read in one pass", anchor=False)
        st.caption(sentence)
        if answer.activated is not None:
            show_figure(
                draw_activated_experts(answer.activated, work.ranks, picked=rank),
                key="activated",
                alt="How many of its expert copies each rank reads in a forward pass, and how many it holds.",
            )


run_guarded(_render)
