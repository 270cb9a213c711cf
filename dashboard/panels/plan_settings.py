"""What somebody asks of a plan: sliders whose place stands in the address."""

from __future__ import annotations

from typing import Final

import streamlit as st

from moescope.analysis.replication import CoverNodes
from moescope.dashboard import carry
from moescope.planning.choices import MOVE_LIMITS, USUAL_MOVE_LIMIT, PlanChoices
from moescope.planning.question import PlanQuestion, StoredGroup

CHANGE: Final = "change"
FROM_SCRATCH: Final = "scratch"
_HOW_WORDS: Final = {CHANGE: "Change what is there", FROM_SCRATCH: "Plan from scratch"}
_NO_LIMIT: Final = "no limit"
_ONLY_FROM_SCRATCH: Final = "Only for a plan from scratch: a change keeps what the placement has."
_COVER_WORDS: Final = {
    CoverNodes.NONE: "No",
    CoverNodes.HOT: "Hot experts",
    CoverNodes.ALL: "All experts",
}


def ask_for_plan(group: StoredGroup, choices: PlanChoices) -> PlanQuestion:
    """Draw the settings and read the question off them."""
    how, redundant = st.columns([2, 3], gap="large")
    with how:
        is_change = _choose_how() == CHANGE
    with redundant:
        copies = _choose_redundant(choices)
    moved, budget, cover = st.columns([2, 2, 2], gap="large")
    with moved:
        limit = _choose_moved(is_change=is_change)
    with budget:
        memory = _choose_budget(choices, is_change=is_change)
    with cover:
        nodes = _choose_cover(choices, is_change=is_change)
    return PlanQuestion(
        group=group,
        redundant_experts=copies,
        max_moved=limit if is_change else None,
        memory_budget=None if is_change or memory == _NO_LIMIT else memory,
        cover_nodes=CoverNodes.NONE if is_change else nodes,
    )


def _choose_how() -> str:
    return str(
        st.segmented_control(
            "How",
            list(_HOW_WORDS),
            required=True,
            format_func=_HOW_WORDS.__getitem__,
            key="how",
            on_change=carry.prepare_choice("how", list(_HOW_WORDS), CHANGE),
            help="A few moves of what is served from now bring most of the balance; a plan from scratch "
            "moves nearly every copy.",
        )
    )


def _choose_redundant(choices: PlanChoices) -> int:
    if choices.redundant_most <= 0:
        st.caption("A single rank has every expert once: copies would add nothing.")
        return 0
    return int(
        st.slider(
            "Redundant experts of each layer",
            min_value=0,
            max_value=choices.redundant_most,
            value=choices.redundant_now,
            step=choices.redundant_step,
            key="redundant",
            bind="query-params",
            help=f"Slots beyond one for each expert; {choices.redundant_now} now. Engines need as many slots "
            f"on each of the {choices.ranks} ranks.",
        )
    )


def _choose_moved(*, is_change: bool) -> str:
    return str(
        st.select_slider(
            "Move at most",
            MOVE_LIMITS,
            value=USUAL_MOVE_LIMIT,
            key="moved",
            bind="query-params",
            disabled=not is_change,
            help="Of all copies. A plan from scratch moves as many as it takes.",
        )
    )


def _choose_budget(choices: PlanChoices, *, is_change: bool) -> str:
    unknown = "No rank reported `moe.expert.weight.size`, so memory cannot be limited."
    usual = "What the experts on one rank may take, all layers together; fewer copies are made where it ends."
    return str(
        st.select_slider(
            "Memory for experts on a rank",
            [*choices.budgets, _NO_LIMIT],
            value=_NO_LIMIT,
            key="budget",
            bind="query-params",
            disabled=is_change or not choices.budgets,
            help=_ONLY_FROM_SCRATCH if is_change else usual if choices.budgets else unknown,
        )
        if choices.budgets
        else st.text_input("Memory for experts on a rank", _NO_LIMIT, disabled=True, help=unknown)
    )


def _choose_cover(choices: PlanChoices, *, is_change: bool) -> CoverNodes:
    one_node = "The ranks live on one node, or on nodes that are not known."
    usual = "Second copies on another node, as far as spare slots go: what survives a node's failure."
    chosen = st.segmented_control(
        "Second copy on another node",
        list(CoverNodes),
        required=True,
        format_func=_COVER_WORDS.__getitem__,
        key="cover",
        on_change=carry.prepare_choice("cover", list(CoverNodes), CoverNodes.NONE),
        disabled=is_change or choices.nodes < 2,
        help=_ONLY_FROM_SCRATCH if is_change else usual if choices.nodes > 1 else one_node,
    )
    return chosen if chosen is not None and choices.nodes > 1 else CoverNodes.NONE
