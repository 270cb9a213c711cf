"""Where copies of experts should be: ask for a plan, see what it is worth, and take its file along."""

from __future__ import annotations

from typing import Final

import streamlit as st

from moescope.analysis import words
from moescope.dashboard import loaders, loaders_replication, missing
from moescope.dashboard.panels.plan_result import show_plan
from moescope.dashboard.panels.plan_settings import ask_for_plan
from moescope.dashboard.plan_jobs import JobState, PlanJob
from moescope.dashboard.states import run_guarded, show_empty_store
from moescope.dashboard.view import View, choose_group, choose_service, choose_window, filter_row
from moescope.planning.choices import PlanChoices, list_choices
from moescope.planning.load import PlanLoad
from moescope.planning.question import PlanQuestion, StoredGroup
from moescope.schemas.attributes import Phase

_ASKED: Final = "replication_asked"
_LOOK_SECONDS: Final = 1
_BOTH: Final = "both"


def _render() -> None:
    scopes = loaders.load_scopes()
    if not scopes:
        show_empty_store()
        return
    with filter_row():
        service = choose_service(scopes)
        ep_group = choose_group(scopes, service)
        phase = _choose_load()
        view = choose_window(scopes, service)
    _show(view, ep_group, phase)


def _choose_load() -> str | None:
    """Both phases share one placement, so both are planned for unless somebody says otherwise."""
    chosen = st.segmented_control(
        "Plan for",
        [_BOTH, *(phase.value for phase in Phase)],
        default=_BOTH,
        required=True,
        key="load",
        bind="query-params",
        help="Prefill and decode share one placement; where each has ranks of its own, plan for the one.",
    )
    return None if chosen in {None, _BOTH} else str(chosen)


def _show(view: View, ep_group: str, phase: str | None) -> None:
    group = StoredGroup(
        service=view.service,
        ep_group=ep_group,
        phase=phase,
        window_seconds=view.window_seconds,
        end_ms=view.end_ms,
    )
    with st.spinner("Reading the load …"):
        load = loaders_replication.load_plan_load(group)
    choices = list_choices(load)
    if choices is None:
        missing.show_missing(missing.PLACEMENT)
        for note in load.notes:
            st.markdown(f":material/info: {note}")
        return
    st.caption(_describe(load, choices))
    with st.container(border=True):
        question = ask_for_plan(group, choices)
        asked = _show_button(question, load)
    if asked is None:
        st.caption(
            "Nothing is planned until you ask; everybody who asks for the same plan sees the same one."
        )
        return
    _watch(asked)


def _describe(load: PlanLoad, choices: PlanChoices) -> str:
    nodes = f" on {words.count(choices.nodes, 'node')}" if choices.nodes > 1 else ""
    return (
        f"{load.source}. {words.count(choices.ranks, 'rank')}{nodes}, "
        f"{words.count(len(load.layers), 'layer')} of {words.count(load.experts, 'expert')}, "
        f"{words.count(choices.redundant_now, 'redundant expert')} a layer now."
    )


def _show_button(question: PlanQuestion, load: PlanLoad) -> PlanQuestion | None:
    """Draw what starts a plan and what would make the same one; return the plan that is asked for."""
    asked: PlanQuestion | None = st.session_state.get(_ASKED)
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        if st.button("Make the plan", type="primary", icon=":material/play_arrow:", key="make_plan"):
            asked = question.until(load.end_ms)
            loaders_replication.start_plan(asked, load)
            st.session_state[_ASKED] = asked
        if asked is not None and asked.until(None) != question.until(None):
            st.caption("What is below was made with other settings.")
    with st.expander("The command for these settings"):
        st.code(question.until(load.end_ms).command(), language="bash", wrap_lines=True)
    return asked


def _watch(asked: PlanQuestion) -> None:
    job = loaders_replication.find_plan(asked)
    if job is None:
        st.info("The plan is not kept any more; ask for it again.", icon=":material/info:")
    elif job.is_under_way:
        _watch_progress(job)
    elif job.state is JobState.CANCELLED:
        st.info("The plan was cancelled.", icon=":material/info:")
    elif job.files is None:
        st.error(f"There is no such plan: {job.error}", icon=":material/error:")
    else:
        show_plan(job.files, asked)


def _watch_progress(job: PlanJob) -> None:
    @st.fragment(run_every=_LOOK_SECONDS)
    def look() -> None:
        if not job.is_under_way:
            st.rerun()
        with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
            st.progress(job.share, text=_describe_progress(job))
            st.button("Cancel", icon=":material/close:", key="cancel_plan", on_click=job.cancel)

    look()


def _describe_progress(job: PlanJob) -> str:
    if job.state is JobState.WAITING:
        return "Waiting for another plan …"
    if not job.doing:
        return "Planning …"
    of = "" if job.total is None else f": {job.done} of {job.total}"
    return f"{job.doing.capitalize()}{of}"


run_guarded(_render)
