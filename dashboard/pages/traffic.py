"""Who sends how much to whom, and who waits for whom."""

from __future__ import annotations

import streamlit as st

from moescope.analysis import words
from moescope.analysis.dispatch import CYCLES_WORDS
from moescope.analysis.rank_io import TrafficValue
from moescope.analysis.rank_nodes import (
    NodeBlock,
    describe_nodes,
    describe_reach,
    list_node_blocks,
    measure_reach,
    saved_by_rank,
)
from moescope.analysis.traffic_report import DEDUP_FORMULA, TrafficAnswer
from moescope.dashboard import loaders, missing
from moescope.dashboard.export import show_figure
from moescope.dashboard.figures.traffic import draw_deduplication, draw_traffic
from moescope.dashboard.figures.waits import draw_waits
from moescope.dashboard.labels import time_label
from moescope.dashboard.panels.traffic_numbers import show_traffic_numbers
from moescope.dashboard.states import run_guarded, show_empty_store
from moescope.dashboard.view import (
    MATRIX,
    View,
    choose_any_phase,
    choose_named_group,
    choose_service,
    choose_window,
    filter_row,
    find_deployment,
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
        value = st.segmented_control(
            "Matrix",
            list(TrafficValue),
            default=TrafficValue.BYTES_SENT,
            required=True,
            key=MATRIX,
            bind="query-params",
        )
        view = choose_window(deployments, service)

    @st.fragment(run_every=view.refresh_seconds)
    def refreshed() -> None:
        run_guarded(lambda: _show(view, ep_group, phase, value or TrafficValue.BYTES_SENT))

    refreshed()


def _show(view: View, ep_group: str, phase: Phase, value: TrafficValue) -> None:
    deployment = find_deployment(loaders.load_deployments(), view.service)
    answer = loaders.load_traffic(view.cover(deployment, ep_group))
    st.caption(f"{words.duration(answer.span.seconds)} to {time_label(answer.span.end)}.")
    _show_matrix(answer, phase, value)
    _show_deduplication(answer, phase)
    _show_waits(answer)


def _show_matrix(answer: TrafficAnswer, phase: Phase, value: TrafficValue) -> None:
    traffic = answer.traffic.get(phase)
    if traffic is None:
        missing.show_missing(missing.TRAFFIC)
        return
    show_traffic_numbers(answer, traffic)
    blocks = list_node_blocks(traffic.ranks, answer.host_of_rank)
    reach = measure_reach(traffic, value, answer.host_of_rank)
    with st.container(border=True, gap="xsmall"):
        st.subheader(f"Between ranks, {phase.value}", anchor=False)
        st.caption(
            "The row reports. A token counts once for each rank that it is sent to, however many of its "
            "experts live there; assignments count every one. " + describe_nodes(blocks)
        )
        if reach is not None:
            st.caption(describe_reach(reach))
        show_figure(
            draw_traffic(traffic, value, blocks),
            key="traffic_matrix",
            alt=f"What each rank exchanges with each other one in {phase.value}: {value.value}.",
        )


def _show_deduplication(answer: TrafficAnswer, phase: Phase) -> None:
    traffic = answer.traffic.get(phase)
    if traffic is None or traffic.dedup_factor is None:
        return
    with st.container(border=True, gap="xsmall"):
        st.subheader(f"Saved by sending each token once, {phase.value}", anchor=False)
        st.caption(
            f"A token with several experts on a rank travels there once: {traffic.dedup_factor:.2f} "
            f"assignments go with each token sent ({DEDUP_FORMULA})."
        )
        show_figure(
            draw_deduplication(traffic, saved_by_rank(traffic)),
            key="deduplication",
            alt=f"Assignments and deduplicated tokens that each rank sends in {phase.value}.",
        )


def _nodes_of_waits(answer: TrafficAnswer) -> tuple[NodeBlock, ...]:
    ranks = next(iter(answer.waits.values())).ranks
    return list_node_blocks(ranks, answer.host_of_rank)


def _show_waits(answer: TrafficAnswer) -> None:
    with st.container(border=True, gap="xsmall"):
        st.subheader("Who waits for whom", anchor=False)
        if not answer.waits:
            missing.show_missing(missing.WAITS)
            return
        st.caption(
            "The row waits for the column. A bright column is a rank that the others wait for; it waits "
            "least itself."
        )
        if not all(waits.is_time for waits in answer.waits.values()):
            st.caption(CYCLES_WORDS)
        show_figure(
            draw_waits(answer.waits, answer.span.seconds, _nodes_of_waits(answer)),
            key="wait_matrix",
            alt="How long each rank waited for each other one in dispatch and combine.",
        )


run_guarded(_render)
