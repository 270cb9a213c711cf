"""Is it worse than before, or than elsewhere: two windows or two deployments, A and B."""

from __future__ import annotations

import numpy as np
import streamlit as st

from moescope.analysis import words
from moescope.analysis.comparison import Comparison, ComparisonSide, Subject
from moescope.analysis.comparison_load import LoadComparison
from moescope.analysis.comparison_words import list_sentences, verdict
from moescope.analysis.expert_load import from_ms
from moescope.analysis.span import Deployment, Span
from moescope.dashboard import loaders, loaders_compare
from moescope.dashboard.export import show_figure
from moescope.dashboard.figures.compare import draw_experts, draw_layers, draw_numbers, draw_ranks
from moescope.dashboard.labels import time_label
from moescope.dashboard.links import EXPERT_LOAD, link_to
from moescope.dashboard.panels.compare_numbers import show_numbers, show_shifts
from moescope.dashboard.panels.compare_sides import OtherSide, choose_other_side
from moescope.dashboard.states import run_guarded, show_empty_store
from moescope.dashboard.view import (
    View,
    choose_any_phase,
    choose_named_group,
    choose_service,
    choose_window,
    filter_row,
    find_deployment,
    link_params,
)
from moescope.schemas.attributes import Phase

_MINUTE_MS = 60_000
_SUBJECT = "subject"


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
    deployments = loaders.load_deployments()
    deployment = find_deployment(deployments, view.service)
    span = view.cover(deployment, ep_group)
    with filter_row():
        other = choose_other_side(deployments, view, ep_group, span.end_ms)
    if other.end_ms - _MINUTE_MS < other.deployment.first_ms:
        st.info(
            f"Nothing is stored of {other.deployment.service} before "
            f"{time_label(from_ms(other.deployment.first_ms))}. Choose a shorter window, or another time.",
            icon=":material/info:",
        )
        return
    a, b = _load(view, deployment, ep_group, phase, span.end_ms), _load_other(view, other, phase)
    comparison = loaders_compare.load_comparison(a, b, phase)
    _show_verdict(comparison, other)
    _show_numbers(comparison)
    _show_load(view, comparison, phase)


def _load(view: View, deployment: Deployment, ep_group: str, phase: Phase, end_ms: int) -> ComparisonSide:
    return loaders_compare.load_side(deployment, ep_group, phase, view.window_seconds, end_ms)


def _load_other(view: View, other: OtherSide, phase: Phase) -> ComparisonSide:
    return _load(view, other.deployment, other.ep_group, phase, other.end_ms)


def _show_verdict(comparison: Comparison, other: OtherSide) -> None:
    worse = any(one.is_worse for one in comparison.numbers)
    icon = ":orange[:material/warning:]" if worse else ":green[:material/check_circle:]"
    st.subheader(f"{icon} {verdict(comparison)}", anchor=False)
    st.caption(
        f"**A** is {_name(comparison.a.span)}.  \n**B** is {_name(comparison.b.span)} ({other.words})."
    )
    with st.container(border=True, gap="xxsmall"):
        for sentence in list_sentences(comparison):
            st.markdown(f"- {sentence}")


def _name(span: Span) -> str:
    group = f", EP group {span.ep_group}" if span.ep_group else ""
    return f"{span.service}{group}, {words.duration(span.seconds)} to {time_label(span.end)}"


def _show_numbers(comparison: Comparison) -> None:
    with st.container(border=True, gap="xsmall"):
        st.subheader("Numbers", anchor=False)
        if not comparison.numbers:
            st.caption("Neither window has a latency, a token rate, or a pool of memory.")
            return
        show_numbers(comparison.numbers)
    stored = [
        subject for subject in Subject if any(one.quantity.subject is subject for one in comparison.numbers)
    ]
    with st.container(border=True, gap="xsmall"):
        st.subheader("Over time", anchor=False)
        subject = st.segmented_control(
            "Numbers of", stored, default=stored[0], required=True, key=_SUBJECT, bind="query-params"
        )
        show_figure(
            draw_numbers(
                [one for one in comparison.numbers if one.quantity.subject is (subject or stored[0])],
                end_of_a=np.datetime64(comparison.a.span.end_ms, "ms"),
                end_of_b=np.datetime64(comparison.b.span.end_ms, "ms"),
            ),
            key="compare_series",
            alt="Every number of A and of B upon each other, by the minutes before the end of the window.",
        )


def _show_load(view: View, comparison: Comparison, phase: Phase) -> None:
    load = comparison.load
    with st.container(border=True, gap="xsmall"):
        st.subheader(f"Expert load, {phase.value}", anchor=False)
        if load is None:
            st.info(
                f"The experts cannot be compared: A and B need load of {phase.value} with the same number of "
                "experts and a layer in common.",
                icon=":material/info:",
            )
            return
        show_figure(
            draw_layers(load),
            key="compare_layers",
            alt="Balance of each layer in A and B, and how much of its load went to other experts.",
        )
        if load.ranks is None:
            st.caption("The ranks of A and B are not the same ones, so their work is not compared.")
        else:
            show_figure(
                draw_ranks(load.ranks),
                key="compare_ranks",
                alt="How much more or less of the work each rank has in A than in B.",
            )
    _show_experts(view, comparison, load, phase)


def _show_experts(view: View, comparison: Comparison, load: LoadComparison, phase: Phase) -> None:
    shifts, assessment = load.experts, comparison.a.assessment
    if not len(shifts) or assessment is None:
        return
    with st.container(border=True, gap="xsmall"):
        st.subheader("Experts that are used differently", anchor=False)
        show_figure(
            draw_experts(shifts, load, experts=assessment.window.scope.experts),
            key="compare_experts",
            alt="Experts whose share of their layer differs beyond noise, by layer and expert.",
        )
        show_shifts(shifts)
        params = link_params(
            view,
            ep_group=assessment.window.scope.ep_group,
            phase=phase,
            layer=int(shifts.layers[0]),
            expert=int(shifts.experts[0]),
        )
        link_to(EXPERT_LOAD, f"Look at expert {shifts.experts[0]} of layer {shifts.layers[0]}", params)


run_guarded(_render)
