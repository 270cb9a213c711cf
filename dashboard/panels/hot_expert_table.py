"""Hot experts ranked by harm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pandas as pd
import streamlit as st

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment

_MAX_ROWS: Final = 100
_KEY: Final = "hot_expert_table"
_HEIGHT: Final = 440


def show_hot_experts(assessment: LoadAssessment, on_pick: Callable[[int, int], None]) -> None:
    """Draw the ranking; ``on_pick(layer, expert)`` is called for a row that somebody picks."""
    hot = assessment.hot_experts
    st.subheader("Hot experts, by harm", anchor=False)
    if not len(hot):
        st.caption("No expert is certainly above its layer's usual.")
        return
    shown = hot.top(_MAX_ROWS)
    st.caption(
        f"{words.integer(hot.num_harmful)} harmful of {words.integer(len(hot))} hot"
        + (f"; the first {len(shown)} are listed." if len(hot) > len(shown) else ".")
        + " Pick a row to see its history."
    )

    def report() -> None:
        rows = st.session_state[_KEY]["selection"]["rows"]
        if rows:
            on_pick(shown[rows[0]].layer, shown[rows[0]].expert)

    frame = pd.DataFrame(
        {
            "": ["●" if one.is_harmful else "" for one in shown],
            "Layer": [one.layer for one in shown],
            "Expert": [one.expert for one in shown],
            "× median": [one.times_median for one in shown],
            "Of a rank": [100 * one.capacity_share for one in shown],
            "Relief": [one.relief for one in shown],
            "Copies": [one.replicas for one in shown],
            "Rank": [_ranks(assessment, one.layer, one.expert) for one in shown],
        }
    )
    st.dataframe(
        frame,
        hide_index=True,
        height=_HEIGHT,
        key=_KEY,
        on_select=report,
        selection_mode="single-row",
        column_config={
            "": st.column_config.TextColumn(width=24, help="● harmful"),
            "Layer": st.column_config.NumberColumn(width=56),
            "Expert": st.column_config.NumberColumn(width=60),
            "× median": st.column_config.NumberColumn(
                format="%.1f", width=72, help="Multiple of the layer's median expert."
            ),
            "Of a rank": st.column_config.ProgressColumn(
                format="%.0f %%",
                width=120,
                min_value=0,
                max_value=max(100.0, *(100 * one.capacity_share for one in shown)),
                help="What one copy takes of a rank's even share of the layer.",
            ),
            "Relief": st.column_config.NumberColumn(
                format="%.2f",
                width=56,
                help="By how much the layer's max / mean would fall without the expert.",
            ),
            "Copies": st.column_config.NumberColumn(width=60),
            "Rank": st.column_config.TextColumn(width=60),
        },
        alt="Hot experts ranked by the harm they do.",
    )


def _ranks(assessment: LoadAssessment, layer: int, expert: int) -> str:
    row = assessment.window.row_of_layer(layer)
    if assessment.placement is None or row is None:
        return ""
    return ", ".join(map(str, assessment.placement.ranks_of(row, expert).tolist()))
