"""Ask the store in SQL: what people query, what it brings back, and what that costs."""

from __future__ import annotations

from typing import Final

import streamlit as st

from moescope.analysis import words
from moescope.analysis.sql_answer import SqlAnswer
from moescope.analysis.sql_console import RunningQuery
from moescope.analysis.sql_transport import row_limit
from moescope.dashboard import loaders
from moescope.dashboard.loaders_sql import load_views
from moescope.dashboard.panels.sql_answer import show_answer, show_problem
from moescope.dashboard.panels.sql_views import show_views
from moescope.dashboard.states import run_guarded
from moescope.dashboard.view import QUERY

_RUNNING: Final = "sql_query"
# What is answered sooner needs no sign that it is under way.
_QUICK_SECONDS: Final = 0.4
_LOOK_SECONDS: Final = 0.5
_EDITOR_HEIGHT: Final = 240


def _render() -> None:
    views = load_views()
    st.html(f"<style>.st-key-{QUERY} textarea {{ font-family: var(--st-code-font, monospace); }}</style>")
    if not loaders.load_deployments():
        st.info(
            "Nothing is stored yet, so views have no rows. `moescope simulate --model kimi-k3` sends "
            "simulated load.",
            icon=":material/info:",
        )
    asking, reading = st.columns([5, 3], gap="medium")
    with asking:
        _show_editor(views[0].example.sql)
        _show_outcome()
    with reading:
        st.subheader("Views", anchor=False)
        st.caption(
            "What people query; each column says what it is and in which unit. Times are UTC. Tables beneath "
            "them may change."
        )
        show_views(views, _use)


def _show_editor(first: str) -> None:
    if QUERY not in st.session_state and not st.query_params.get(QUERY):
        st.session_state[QUERY] = first
    settings = loaders.get_settings()
    with st.form("sql", border=False):
        st.text_area(
            "Query",
            key=QUERY,
            bind="query-params",
            height=_EDITOR_HEIGHT,
            help="One statement that reads. The address of this page carries it, so it can be shared.",
        )
        with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
            is_sent = st.form_submit_button("Run", type="primary", icon=":material/play_arrow:")
            st.caption(
                f"Ctrl+Enter runs it. Reads only, {words.duration(settings.sql_max_seconds)}, "
                f"{words.binary_bytes(settings.sql_max_memory_bytes)} of memory and "
                f"{words.integer(row_limit(settings))} rows at most."
            )
    if is_sent:
        _run(str(st.session_state[QUERY] or ""))


def _use(sql: str) -> None:
    st.session_state[QUERY] = sql


def _run(sql: str) -> None:
    before: RunningQuery | None = st.session_state.get(_RUNNING)
    if before is not None and before.outcome is None:
        before.cancel()
    if not sql.strip():
        st.session_state.pop(_RUNNING, None)
        return
    query = st.session_state[_RUNNING] = RunningQuery(sql, loaders.get_settings())
    query.wait(_QUICK_SECONDS)


def _show_outcome() -> None:
    query: RunningQuery | None = st.session_state.get(_RUNNING)
    # What an earlier text brought is no answer to the text that stands there.
    if query is None or query.sql != st.session_state[QUERY]:
        return
    if query.outcome is None:
        _show_progress(query)
        return
    if isinstance(query.outcome, SqlAnswer):
        show_answer(query.outcome, limit=row_limit(loaders.get_settings()), seconds=query.seconds)
    else:
        show_problem(query.outcome)


def _show_progress(query: RunningQuery) -> None:
    @st.fragment(run_every=_LOOK_SECONDS)
    def progress() -> None:
        if query.outcome is not None:
            st.rerun()
        with st.container(border=True, horizontal=True, vertical_alignment="center"):
            st.markdown(f":material/hourglass_top: Running for {words.duration(query.seconds)}")
            st.button("Cancel", icon=":material/cancel:", on_click=query.cancel, key="sql-cancel")
            st.caption("The store is told to stop.", help=f"Query id: `{query.query_id}`")

    progress()


run_guarded(_render)
