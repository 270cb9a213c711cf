"""Can the numbers be believed, who reports them, and what do the machines say."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from moescope.analysis import words
from moescope.analysis.computed_tokens import ComputedTokens
from moescope.analysis.gpus import Gpu
from moescope.analysis.quality_findings import list_quality_findings
from moescope.dashboard import loaders, missing
from moescope.dashboard.export import show_figure
from moescope.dashboard.figures.health import describe_totals, draw_gpus, draw_tokens
from moescope.dashboard.labels import time_label
from moescope.dashboard.panels.finding_list import show_statement
from moescope.dashboard.panels.key_numbers import show_telemetry
from moescope.dashboard.panels.process_table import show_failovers, show_processes
from moescope.dashboard.states import run_guarded, show_empty_store
from moescope.dashboard.view import View, choose_service, choose_window, filter_row, find_deployment


def _render() -> None:
    deployments = loaders.load_deployments()
    if not deployments:
        show_empty_store("telemetry", loaders.load_deployments)
        return
    with filter_row():
        view = choose_window(deployments, choose_service(deployments))

    @st.fragment(run_every=view.refresh_seconds)
    def refreshed() -> None:
        run_guarded(lambda: _show(view))

    refreshed()


def _show(view: View) -> None:
    span = view.cover(find_deployment(loaders.load_deployments(), view.service))
    quality = loaders.load_quality(view.service)
    tokens, gpus, failovers = loaders.load_health(span)
    st.caption(f"{words.duration(span.seconds)} to {time_label(span.end)}.")
    for finding in list_quality_findings(quality):
        show_statement(finding)
    show_telemetry(quality)
    show_processes(quality)
    _show_tokens(tokens)
    _show_gpus(gpus)
    show_failovers(failovers)


def _show_tokens(tokens: ComputedTokens) -> None:
    with st.container(border=True, gap="xsmall"):
        st.subheader("Tokens computed", anchor=False)
        if not tokens.totals:
            missing.show_missing(missing.TOKENS)
            return
        st.caption(describe_totals(tokens))
        show_figure(
            draw_tokens(tokens),
            key="tokens",
            alt="Token rows a second by phase, those of the load and those that are excluded.",
        )


def _show_gpus(gpus: Sequence[Gpu]) -> None:
    with st.container(border=True, gap="xsmall"):
        st.subheader("GPUs", anchor=False)
        if not gpus:
            missing.show_missing(missing.GPUS)
            return
        show_figure(
            draw_gpus(gpus),
            key="gpus",
            alt="How busy and how full each GPU is, and what it sends over its links.",
        )


run_guarded(_render)
