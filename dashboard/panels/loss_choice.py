"""Whose loss is asked about: chosen in a list or by a click on a bar, and kept in the address."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import streamlit as st

from moescope.analysis import words
from moescope.analysis.failover_facts import FailoverFacts
from moescope.analysis.failover_report import FailoverAnswer
from moescope.dashboard import carry
from moescope.dashboard.carry import NODE, RANK
from moescope.dashboard.view import whole_number

_CHOICE: Final = "failover_loss"
_WORST: Final = "The worst rank"


@dataclass(frozen=True, slots=True)
class LossChoice:
    """A rank, a node, or neither: the worst rank."""

    rank: int | None = None
    node: str | None = None


def loss_in_address(facts: FailoverFacts) -> tuple[LossChoice, str]:
    """What the address names, if the group has it; and a sentence where it does not."""
    rank, node = st.query_params.get(RANK, ""), st.query_params.get(NODE, "")
    if node in facts.nodes:
        return LossChoice(node=node), ""
    number = whole_number(RANK)
    if number is not None and facts.row_of_rank(number) is not None:
        return LossChoice(rank=number), ""
    named = f"node {node}" if node else f"rank {rank}" if rank else ""
    return LossChoice(), f"This group has no {named}; shown is the worst rank." if named else ""


def named_loss(choice: LossChoice, every: FailoverAnswer) -> LossChoice:
    """What is chosen, by name: the worst rank is known from the losses of all of them."""
    return LossChoice(rank=int(every.focus[0].ranks[0])) if choice == LossChoice() else choice


def choose_loss(facts: FailoverFacts) -> None:
    """Draw the list; the address follows what is chosen."""
    nodes = {f"Node {name} ({_ranks_on(facts, name)})": LossChoice(node=name) for name in facts.nodes}
    ranks = {f"Rank {rank}": LossChoice(rank=rank) for rank in facts.ranks.tolist()}
    choices = {_WORST: LossChoice(), **(nodes if len(nodes) > 1 else {}), **ranks}
    current, _ = loss_in_address(facts)
    st.session_state[_CHOICE] = next((text for text, one in choices.items() if one == current), _WORST)

    def follow() -> None:
        pick_loss(choices[st.session_state[_CHOICE]])

    st.selectbox("Lose", list(choices), key=_CHOICE, on_change=follow, width=320)


def pick_loss(choice: LossChoice) -> None:
    """Put a loss into the address."""
    carry.point_at(rank=choice.rank, node=choice.node)


def pick_on_click(chart: str) -> Callable[[], None]:
    """What a click on a bar of the chart with that key does: the rank or node of the bar is picked."""

    def follow() -> None:
        points = st.session_state[chart]["selection"]["points"]
        if points:
            name = points[0]["x"]
            pick_loss(LossChoice(node=name) if isinstance(name, str) else LossChoice(rank=int(name)))

    return follow


def _ranks_on(facts: FailoverFacts, node: str) -> str:
    return words.listed("rank", facts.ranks[facts.nodes[node]].tolist()).lower()
