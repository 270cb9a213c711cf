"""What is wrong now, in words, with numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import streamlit as st

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.finding import Finding
from moescope.analysis.findings import list_findings
from moescope.analysis.latency_findings import list_latency_findings
from moescope.analysis.overview import PhaseSummary, summarise_phase
from moescope.analysis.straggler_findings import list_straggler_findings
from moescope.dashboard import loaders
from moescope.dashboard.export import show_figure
from moescope.dashboard.figures.layer_imbalance import draw_layer_imbalance
from moescope.dashboard.labels import time_label
from moescope.dashboard.loaders_overview import load_headroom, load_prefix_cache_findings
from moescope.dashboard.panels.finding_list import show_findings
from moescope.dashboard.panels.glance import show_glance
from moescope.dashboard.panels.key_numbers import show_phase, show_telemetry
from moescope.dashboard.states import run_guarded, show_empty_store
from moescope.dashboard.view import View, choose_service, choose_window, filter_row, find_deployment
from moescope.schemas.attributes import Phase


def _render() -> None:
    scopes = loaders.load_scopes()
    if not scopes:
        show_empty_store()
        return
    with filter_row():
        view = choose_window(scopes, choose_service(scopes))

    @st.fragment(run_every=view.refresh_seconds)
    def refreshed() -> None:
        run_guarded(lambda: _show(view))

    refreshed()


def _show(view: View) -> None:
    settings = loaders.get_settings()
    scopes = [scope for scope in loaders.load_scopes() if scope.service == view.service]
    scopes.sort(key=lambda scope: (scope.ep_group, list(Phase).index(scope.phase)))
    assessments = [loaders.load_assessment(scope, view.window_seconds, view.end_ms) for scope in scopes]
    quality = loaders.load_quality(view.service)
    summaries = _summarise(view, assessments)
    _show_time(assessments)
    deployment = find_deployment(loaders.load_deployments(), view.service)
    latency = loaders.load_latency(view.cover(deployment))
    show_glance(
        view,
        settings,
        latency,
        summaries,
        load_headroom(tuple(view.cover(deployment, group) for group in deployment.ep_groups)),
    )
    # Findings take longer than what stands below them: weighing moves is seconds of work for a large model.
    above = st.container()
    st.space("small")
    _show_key_numbers(view, summaries)
    with st.container(border=True, gap="xsmall"):
        st.subheader("Imbalance by layer", anchor=False)
        show_figure(
            draw_layer_imbalance(assessments, acceptable_ratio=settings.imbalance_ratio),
            key="layer_imbalance",
            alt="Imbalance ratio of each layer, one panel a phase.",
        )
    with above:
        with st.spinner("Looking for what is wrong …"):
            others = [
                *_memory_findings(view),
                *loaders.load_replan_findings(assessments, view.window_seconds, view.end_ms),
                *_straggler_findings(view),
                *list_latency_findings(latency, settings),
                *load_prefix_cache_findings(view.cover(deployment)),
            ]
        show_findings(list_findings(assessments, quality, settings, others), view)


def _straggler_findings(view: View) -> Iterator[Finding]:
    deployment = find_deployment(loaders.load_deployments(), view.service)
    answers = [loaders.load_stragglers(view.cover(deployment, group)) for group in deployment.ep_groups]
    yield from list_straggler_findings(answers)


def _memory_findings(view: View) -> tuple[Finding, ...]:
    """Of now alone: how a pool grew an hour ago says nothing of when it ends."""
    if view.end_ms is not None:
        return ()
    deployments = [one for one in loaders.load_deployments() if one.service == view.service]
    return tuple(
        finding for one in deployments for finding in loaders.load_memory_findings(one, view.window_seconds)
    )


def _show_time(assessments: Sequence[LoadAssessment]) -> None:
    newest = max(assessments, key=lambda one: one.window.end_ms).window
    st.caption(f"{words.duration(newest.seconds)} to {time_label(newest.end)}")


def _summarise(view: View, assessments: Sequence[LoadAssessment]) -> list[PhaseSummary]:
    windows = [one.window for one in assessments]
    rates = loaders.load_token_rates(
        view.service,
        start_ms=min(window.start_ms for window in windows),
        end_ms=max(window.end_ms for window in windows),
    )
    summaries = [summarise_phase(phase, assessments, rates) for phase in Phase]
    return [summary for summary in summaries if summary is not None]


def _show_key_numbers(view: View, summaries: Sequence[PhaseSummary]) -> None:
    for column, summary in zip(st.columns(len(summaries)), summaries, strict=True):
        with column:
            show_phase(summary, loaders.get_settings())
    show_telemetry(loaders.load_quality(view.service))


run_guarded(_render)
