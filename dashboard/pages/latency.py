"""How long do requests take, what do they wait for, and how many keep the latency contract."""

from __future__ import annotations

import streamlit as st

from moescope.analysis import words
from moescope.analysis.latency_report import LatencyAnswer
from moescope.dashboard import loaders, missing
from moescope.dashboard.export import show_figure
from moescope.dashboard.figures.latency import (
    draw_goodput,
    draw_inside,
    draw_request_latency,
    draw_request_load,
)
from moescope.dashboard.labels import time_label
from moescope.dashboard.panels.latency_numbers import show_goodput, show_request_numbers
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
    answer = loaders.load_latency(span)
    settings = loaders.get_settings()
    st.caption(
        f"{words.duration(span.seconds)} to {time_label(span.end)}. The latency contract: first token within "
        f"{words.seconds(settings.contract_ttft_seconds)}, then one within "
        f"{words.seconds(settings.contract_tpot_seconds)} on average."
    )
    _show_requests(answer)
    _show_inside(answer)
    _show_load(answer)


def _show_requests(answer: LatencyAnswer) -> None:
    if not answer.requests and not answer.goodput.requests:
        missing.show_missing(missing.REQUESTS)
        return
    show_request_numbers(answer)
    show_goodput(answer, loaders.get_settings())
    with st.container(border=True, gap="xsmall"):
        st.subheader("Requests", anchor=False)
        show_figure(
            draw_request_latency(answer, loaders.get_settings()),
            key="request_latency",
            alt="Percentiles of every latency of requests over time, and the share that kept the contract.",
        )
    _show_goodput(answer)


def _show_goodput(answer: LatencyAnswer) -> None:
    if not answer.goodput.requests:
        return
    with st.container(border=True, gap="xsmall"):
        st.subheader("Goodput", anchor=False)
        st.caption("What is between the lines was computed for requests that missed the latency contract.")
        show_figure(
            draw_goodput(answer),
            key="goodput",
            alt="Finished requests and output tokens a second, all and those within the latency contract.",
        )


def _show_inside(answer: LatencyAnswer) -> None:
    with st.container(border=True, gap="xsmall"):
        st.subheader("Inside the engine", anchor=False)
        if not answer.has_inside:
            missing.show_missing(missing.INSIDE)
            return
        st.caption("Prefill and decode apart. Dispatch and combine include the wait for the slowest rank.")
        show_figure(
            draw_inside(answer),
            key="inside",
            alt="Percentiles of forward passes, dispatch and combine over time, one row a phase.",
        )


def _show_load(answer: LatencyAnswer) -> None:
    with st.container(border=True, gap="xsmall"):
        st.subheader("Requests in the engine", anchor=False)
        if not len(answer.load.times):
            missing.show_missing(missing.LOAD)
            return
        show_figure(
            draw_request_load(answer.load),
            key="request_load",
            alt="Requests running and waiting over time.",
        )


run_guarded(_render)
