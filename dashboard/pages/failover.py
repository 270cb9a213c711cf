"""A rank or a node is lost: what goes with it, who takes over, and what would have protected."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Final

import streamlit as st

from moescope.analysis import words
from moescope.analysis.failover_facts import FailoverFacts
from moescope.analysis.failover_impact import FailoverStrategy
from moescope.analysis.failover_report import FailoverAnswer
from moescope.analysis.failover_words import describe_group
from moescope.dashboard import carry, loaders, loaders_failover, missing
from moescope.dashboard.export import show_figure
from moescope.dashboard.figures.failover import draw_losses
from moescope.dashboard.labels import time_label
from moescope.dashboard.loaders_failover import FailoverScope
from moescope.dashboard.panels.loss_choice import choose_loss, loss_in_address, named_loss, pick_on_click
from moescope.dashboard.panels.loss_detail import (
    STRATEGY_WORDS,
    show_loss,
    show_lost_experts,
    show_picture,
    show_protection,
    show_strategies,
)
from moescope.dashboard.states import run_guarded, show_empty_store
from moescope.dashboard.view import (
    View,
    choose_group,
    choose_service,
    choose_window,
    filter_row,
    link_params,
)

_CHART: Final = "losses"
_STRATEGY: Final = "strategy"
# Whose losses are on the page: a spinner at each refresh would push them down.
_SHOWN: Final = "failover_shown"


def _render() -> None:
    scopes = loaders.load_scopes()
    if not scopes:
        show_empty_store()
        return
    with filter_row():
        service = choose_service(scopes)
        ep_group = choose_group(scopes, service)
        view = choose_window(scopes, service)

    @st.fragment(run_every=view.refresh_seconds)
    def refreshed() -> None:
        run_guarded(lambda: _show(view, ep_group))

    refreshed()


def _show(view: View, ep_group: str) -> None:
    scope = FailoverScope(view.service, ep_group, view.window_seconds, view.end_ms)
    is_new = st.session_state.get(_SHOWN) != scope
    with st.spinner("Losing every rank in turn …") if is_new else nullcontext():
        facts = loaders_failover.load_facts(scope)
        every = None if facts is None else loaders_failover.load_every_loss(facts)
    if facts is None or every is None:
        missing.show_missing(missing.PLACEMENT)
        return
    when = f"{words.duration(facts.span.seconds)} to {time_label(facts.span.end)}"
    st.caption(f"{when}. {describe_group(facts)}")
    choice, remark = loss_in_address(facts)
    with st.spinner("Working out what is lost …") if is_new else nullcontext():
        lost = named_loss(choice, every)
        answer = loaders_failover.load_loss(facts, rank=lost.rank, node=lost.node)
    _show_every_loss(every, answer)
    _show_choice(facts, remark)
    _show_loss(view, ep_group, answer)
    st.session_state[_SHOWN] = scope


def _show_every_loss(every: FailoverAnswer, answer: FailoverAnswer) -> None:
    with st.container(border=True, gap="xsmall"):
        st.subheader(f"{_icon(every)} {every.headline}", anchor=False)
        st.caption(
            f"One rank may take {words.percent(every.acceptable_share)} with it "
            "(`MOESCOPE_FAILOVER_LOST_SHARE`). Click a bar to see what its loss does."
        )
        for note in every.notes():
            st.markdown(f":material/info: {note}")
        show_figure(
            draw_losses(
                every.ranks,
                every.nodes,
                acceptable_share=every.acceptable_share,
                picked=answer.focus[0],
            ),
            key=_CHART,
            on_click=pick_on_click(_CHART),
            alt="Part of the traffic that is lost with each rank and each node, and what copies take over.",
        )


def _icon(every: FailoverAnswer) -> str:
    if len(every.facts.ranks) == 1:
        return ":material/info:"
    return ":red[:material/error:]" if every.has_problem else ":green[:material/check_circle:]"


def _show_choice(facts: FailoverFacts, remark: str) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        choose_loss(facts)
        strategies = list(FailoverStrategy)
        st.segmented_control(
            "Then",
            strategies,
            required=True,
            format_func=STRATEGY_WORDS.__getitem__,
            key=_STRATEGY,
            on_change=carry.prepare_choice(_STRATEGY, strategies, FailoverStrategy.REASSIGN),
            help="What becomes of tokens that need a lost expert: load it again on a rank that stays, let "
            "them wait, or let the next-best expert stand in.",
        )
    if remark:
        st.info(remark, icon=":material/info:")


def _show_loss(view: View, ep_group: str, answer: FailoverAnswer) -> None:
    loss, facts = answer.focus[0], answer.facts
    show_loss(loss, facts)
    if any(outcome.busiest_rank is not None for outcome in loss.outcomes.values()):
        show_strategies(loss)
        strategy = st.session_state.get(_STRATEGY) or FailoverStrategy.REASSIGN
        picture = loaders_failover.load_picture(answer, strategy)
        with st.container(border=True, gap="xsmall"):
            st.subheader(f"{STRATEGY_WORDS[strategy]}: who does what", anchor=False)
            show_picture(picture, loss)
        left, right = st.columns([3, 2], gap="large")
        with left:
            st.subheader("What would protect", anchor=False)
            show_protection(loss, facts, link_params(view, ep_group=ep_group))
            st.markdown(answer.front_end_line())
        with right:
            if picture.lost:
                st.subheader("Missed most", anchor=False)
                show_lost_experts(picture)
        return
    st.markdown(answer.front_end_line())


run_guarded(_render)
