"""Who is late, by how much and why: the straggler report's own sentences."""

from __future__ import annotations

import streamlit as st

from moescope.analysis.straggler import Straggler
from moescope.analysis.straggler_report import StragglerAnswer
from moescope.analysis.straggler_words import cost_sentence, title, when_sentence


def show_stragglers(answer: StragglerAnswer) -> None:
    """Draw what is named, or that nothing is, and what could not be known."""
    if answer.stragglers:
        for one in answer.stragglers:
            _show_straggler(one)
    else:
        icon = ":green[:material/check_circle:]" if answer.is_judged else ":gray[:material/help:]"
        st.subheader(f"{icon} {answer.verdict}", anchor=False)
    for gap in answer.gaps:
        st.caption(f"Not known: {gap}")


def _show_straggler(one: Straggler) -> None:
    with st.container(border=True, gap="xxsmall"):
        st.markdown(f":orange[:material/warning:]&ensp;**{title(one)}**")
        st.caption(f"{when_sentence(one)} {cost_sentence(one)}".strip())
        st.caption(" ".join(one.evidence))
        st.caption(one.advice)
