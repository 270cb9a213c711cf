"""What a page says when it cannot show data: what is missing, and how to get it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import streamlit as st

from moescope.dashboard import loaders
from moescope.dashboard.labels import PHASE_LABEL
from moescope.dashboard.navigation import lacks_frame, run_chosen_page
from moescope.schemas.attributes import Phase
from moescope.schemas.errors import MoescopeError

_RETRY_SECONDS: Final = 5


def run_guarded(body: Callable[[], None]) -> None:
    """Run the body of a page; an error of ours becomes a message with a way to try again."""
    if lacks_frame():
        run_chosen_page()
        return
    try:
        body()
    except MoescopeError as error:
        _show_error(error)


def show_empty_store(what: str = "expert load", has_any: Callable[[], object] = loaders.load_scopes) -> None:
    """Nothing is stored yet: say so, look again by itself until ``has_any`` finds something."""
    with st.container(border=True):
        st.subheader(f"No {what} has arrived yet", anchor=False)
        st.markdown(
            f"The store at `{loaders.get_settings().dsn.rpartition('@')[2]}` answers and is ready; "
            "nobody has sent anything. Send simulated load of a Kimi-K3 fleet:"
        )
        st.code("moescope simulate --model kimi-k3", language="bash")
        st.markdown("Or instrument an engine. vLLM needs no code, only the package in its environment:")
        st.code("pip install moescope\nvllm serve <model>", language="bash")
        st.markdown("`moescope doctor` says what is missing on the way. This page looks again by itself.")
    _look_again(has_any)


def show_missing_phase(phase: Phase | None) -> None:
    """Nothing of a phase is stored, which is normal where prefill and decode are served apart."""
    name = PHASE_LABEL[phase].lower() if phase else "this phase"
    st.info(
        f"Nothing of {name} is stored for this EP group. Where prefill and decode are served apart, "
        "each has a group or a deployment of its own.",
        icon=":material/info:",
    )


def _show_error(error: MoescopeError) -> None:
    with st.container(border=True):
        title = "The store cannot be read" if not error.retryable else "The store does not answer"
        st.subheader(title, anchor=False)
        message = str(error)
        st.markdown(f"{message[:1].upper()}{message[1:]}")
        st.button("Try again", icon=":material/refresh:", on_click=loaders.release_stores)
        if error.retryable:
            st.caption(f"This page tries again by itself every {_RETRY_SECONDS} seconds.")
    if error.retryable:
        _look_again(loaders.load_deployments)


def _look_again(has_any: Callable[[], object]) -> None:
    """Run the page again once the store has something to say."""

    @st.fragment(run_every=_RETRY_SECONDS)
    def look() -> None:
        try:
            has_something = bool(has_any())
        except MoescopeError:
            return
        if has_something:
            st.rerun()

    look()
