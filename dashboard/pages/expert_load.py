"""Which expert of which layer is used how much, and who suffers from it."""

from __future__ import annotations

from typing import Final

import streamlit as st

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.heatmap import CellValue, make_cells
from moescope.analysis.skew import typical
from moescope.dashboard import loaders
from moescope.dashboard.chart_events import current_zoom, watch_chart
from moescope.dashboard.export import show_figure
from moescope.dashboard.figures.expert_load import draw_expert_load, zoom_in
from moescope.dashboard.labels import time_label
from moescope.dashboard.panels.expert_detail import show_expert
from moescope.dashboard.panels.hot_expert_table import show_hot_experts
from moescope.dashboard.states import run_guarded, show_empty_store, show_missing_phase
from moescope.dashboard.view import (
    SHOW,
    View,
    choose_group,
    choose_phase,
    choose_service,
    choose_window,
    filter_row,
    find_scope,
    pick_expert,
    picked_expert,
)
from moescope.schemas.attributes import Phase

_CHART: Final = "expert_load_chart"


def _render() -> None:
    scopes = loaders.load_scopes()
    if not scopes:
        show_empty_store()
        return
    with filter_row():
        service = choose_service(scopes)
        ep_group = choose_group(scopes, service)
        phase = choose_phase(scopes, service, ep_group)
        value = _choose_value()
        view = choose_window(scopes, service)

    @st.fragment(run_every=view.refresh_seconds)
    def refreshed() -> None:
        run_guarded(lambda: _show(view, ep_group, phase, value))

    refreshed()


def _choose_value() -> CellValue:
    chosen = st.segmented_control(
        "Show",
        list(CellValue),
        default=CellValue.TIMES_MEDIAN,
        required=True,
        key=SHOW,
        bind="query-params",
    )
    return chosen or CellValue.TIMES_MEDIAN


def _show(view: View, ep_group: str, phase: Phase | None, value: CellValue) -> None:
    scope = find_scope(loaders.load_scopes(), view.service, ep_group, phase)
    if scope is None:
        show_missing_phase(phase)
        return
    assessment = loaders.load_assessment(scope, view.window_seconds, view.end_ms)
    picked = picked_expert()
    _show_heatmap(assessment, value, picked)
    selected = picked or _most_harmful(assessment)
    left, right = st.columns([1, 1], gap="large")
    with left:
        if selected is None:
            st.caption("Click a cell to see its expert's history.")
        else:
            show_expert(assessment, *selected)
    with right:
        show_hot_experts(assessment, pick_expert)


def _show_heatmap(assessment: LoadAssessment, value: CellValue, selected: tuple[int, int] | None) -> None:
    window = assessment.window
    st.caption(
        f"{words.duration(window.seconds)} to {time_label(window.end)}: "
        f"{words.compact(int(window.tokens.sum()))} assignments to {window.scope.experts} experts in "
        f"{words.count(len(window.layers), 'layer')}. {_describe_skew(assessment)}"
        "Rings mark hot experts, strong ones those that do harm; click a cell to see its expert's history."
    )
    figure = draw_expert_load(
        assessment,
        make_cells(window, value),
        acceptable_ratio=loaders.get_settings().imbalance_ratio,
        selected=selected,
    )
    subject = f"{window.scope.service}/{window.scope.ep_group}"
    zoom = current_zoom(_CHART, subject)
    if zoom is not None:
        zoom_in(figure, x=zoom.x, y=zoom.y)
    show_figure(
        figure,
        key=_CHART,
        name="expert-load",
        alt=f"Load of every expert of every layer in {window.scope.phase.value}, and each layer's imbalance.",
    )
    watch_chart(_CHART, on_click=pick_expert, subject=subject)


def _describe_skew(assessment: LoadAssessment) -> str:
    share = typical(assessment.skew.busiest_fifth_share)
    gini, used = typical(assessment.skew.gini), typical(assessment.skew.effective_experts_entropy)
    if share is None or gini is None or used is None:
        return ""
    return (
        f"In the typical layer the busiest fifth gets {words.percent(share)} (Gini {gini:.2f}), "
        f"as if {used:.0f} experts shared evenly. "
    )


def _most_harmful(assessment: LoadAssessment) -> tuple[int, int] | None:
    """What to show before anybody picked anything."""
    first = assessment.hot_experts.top(1)
    return (first[0].layer, first[0].expert) if first else None


run_guarded(_render)
