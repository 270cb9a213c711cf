"""Every rank in one row: its work, its passes, and what the others wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd
import streamlit as st

from moescope.analysis.rank_facts import RankFacts
from moescope.dashboard.panels.rank_detail import pick_rank
from moescope.schemas.attributes import DispatchStage

_KEY: Final = "rank_table"
_MAX_HEIGHT, _ROW_HEIGHT = 460, 35
_TIMES: Final = "%.2f ×"


def show_rank_table(facts: Sequence[RankFacts]) -> None:
    """Draw the table; a row that somebody picks opens its rank."""
    if not facts:
        return

    def report() -> None:
        rows = st.session_state[_KEY]["selection"]["rows"]
        if rows:
            pick_rank(facts[rows[0]].rank)

    with st.container(border=True, gap="xsmall"):
        st.subheader("Rank by rank", anchor=False)
        st.caption("Click a column's name to sort by it, pick a row to look at its rank. ● is named above.")
        st.dataframe(
            _frame(facts),
            hide_index=True,
            height=min(_MAX_HEIGHT, _ROW_HEIGHT * (len(facts) + 1) + 3),
            key=_KEY,
            on_select=report,
            selection_mode="single-row",
            column_config={
                "": st.column_config.TextColumn(width=24, help="● named as late"),
                "Rank": st.column_config.NumberColumn(width=56),
                "Work": st.column_config.NumberColumn(
                    format=_TIMES, help="Its assignments over all layers, × the mean rank's."
                ),
                "Worst layer": st.column_config.NumberColumn(help="Where it has most over the layer's mean."),
                "There": st.column_config.NumberColumn(
                    format=_TIMES, help="What it has in that layer, × the layer's mean rank."
                ),
                "Pass": st.column_config.NumberColumn(
                    format="%.1f ms", help="Its typical forward pass, waiting included."
                ),
                "Awaited in dispatch": st.column_config.NumberColumn(
                    format=_TIMES, help="What the others wait for it, × the usual wait for one."
                ),
                "Awaited in combine": st.column_config.NumberColumn(
                    format=_TIMES, help="What the others wait for it, × the usual wait for one."
                ),
                "Costs others": st.column_config.NumberColumn(
                    format="%.1f %%", help="Part of its time that each other rank loses to it."
                ),
                "Time at load": st.column_config.NumberColumn(
                    format=_TIMES, help="Its expert time, × what others need for the same load."
                ),
            },
            alt="Every rank with its work, its passes, and what the others wait for it.",
        )


def _frame(facts: Sequence[RankFacts]) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "": ["●" if one.named else "" for one in facts],
            "Rank": [one.rank for one in facts],
            "Host": [one.host for one in facts],
            "Work": [one.of_mean for one in facts],
            "Worst layer": pd.array([one.worst_layer for one in facts], dtype="Int64"),
            "There": [one.worst_of_mean for one in facts],
            "Pass": [1_000 * one.pass_seconds for one in facts],
            **{
                f"Awaited in {stage.value}": [one.times_awaited.get(stage, float("nan")) for one in facts]
                for stage in DispatchStage
            },
            "Costs others": [100 * one.lost_share for one in facts],
            "Time at load": [one.time_at_load for one in facts],
        }
    )
    return frame.dropna(axis="columns", how="all")
