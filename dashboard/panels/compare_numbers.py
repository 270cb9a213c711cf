"""Every number of both windows in one row, with its difference and whether it is beyond noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd
import streamlit as st

from moescope.analysis import words
from moescope.analysis.comparison import NumberChange
from moescope.analysis.comparison_load import ExpertShifts
from moescope.analysis.comparison_words import UNKNOWN, amount, difference

_ROW_HEIGHT: Final = 35
_MAX_HEIGHT: Final = 460
_MAX_SHIFTS: Final = 100


def show_numbers(numbers: Sequence[NumberChange]) -> None:
    """Draw the table, worst first within nothing: in the order in which numbers are read."""
    st.dataframe(
        pd.DataFrame(
            {
                "Number": [one.quantity.name for one in numbers],
                "A": [amount(one, one.a) for one in numbers],
                "B": [amount(one, one.b) for one in numbers],
                "A − B": [difference(one) for one in numbers],
                "A / B": [UNKNOWN if one.times != one.times else f"{one.times:.2f} ×" for one in numbers],
                "": [_verdict(one) for one in numbers],
                "About": [one.quantity.subject.value for one in numbers],
            }
        ),
        hide_index=True,
        height=_ROW_HEIGHT * (len(numbers) + 1) + 3,
        key="compare_numbers",
        column_config={
            "": st.column_config.TextColumn(
                help="Beyond noise: the minutes of A lie above those of B, or below, more often than chance "
                "makes them (Mann–Whitney, widened for minutes that resemble their neighbours)."
            )
        },
        alt="Every number of A and of B, with the difference and whether it is beyond noise.",
    )


def show_shifts(shifts: ExpertShifts) -> None:
    """Draw the experts whose share differs most."""
    layers, experts = shifts.layers[:_MAX_SHIFTS], shifts.experts[:_MAX_SHIFTS]
    st.dataframe(
        pd.DataFrame(
            {
                "Layer": layers,
                "Expert": experts,
                "Of the layer, A": [words.percent(share) for share in shifts.share_of_a[:_MAX_SHIFTS]],
                "Of the layer, B": [words.percent(share) for share in shifts.share_of_b[:_MAX_SHIFTS]],
                "A / B": shifts.times[:_MAX_SHIFTS],
            }
        ),
        hide_index=True,
        height=min(_MAX_HEIGHT, _ROW_HEIGHT * (len(layers) + 1) + 3),
        key="expert_shifts",
        column_config={"A / B": st.column_config.NumberColumn(format="%.2f ×")},
        alt="Experts whose share of their layer differs beyond noise, the largest difference first.",
    )


def _verdict(one: NumberChange) -> str:
    if one.is_worse:
        return f"▲ worse: {one.change.value}"
    if one.is_better:
        return f"● better: {one.change.value}"
    return one.change.value
