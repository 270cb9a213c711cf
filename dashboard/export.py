"""A figure on a page, with its numbers as CSV and itself as a picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from moescope.dashboard.figure_data import drawn_values

STYLE: Final = """
[class*='-figure-with-export'] { position: relative; }
[class*='-csv-of-figure'] { position: absolute; right: 0; bottom: 0; width: auto; z-index: 2; }
[class*='-csv-of-figure'] button { min-height: 0; padding: 0 0.25rem; opacity: 0.65; font-size: 0.8rem; }
[class*='-csv-of-figure'] button:hover, [class*='-csv-of-figure'] button:focus-visible { opacity: 1; }
"""
"""Puts the button into the corner below the time axis, where figures have room."""


def show_figure(
    figure: go.Figure,
    *,
    key: str,
    alt: str,
    name: str = "",
    data: Callable[[], pd.DataFrame] | None = None,
    on_click: Callable[[], None] | None = None,
) -> None:
    """Draw a figure with its two exports.

    Args:
        figure: what is drawn.
        key: of the ``st.plotly_chart``.
        alt: what the figure shows, for those who do not see it.
        name: of the downloaded files, without an ending; that of the key if empty.
        data: the table of the CSV, made only when somebody asks for it; what is drawn if None.
        on_click: called when a point or bar is clicked; which one stands in the session's state under the
            key, as Streamlit's selections do.
    """
    name = name or key.replace("_", "-")
    with st.container(key=f"{key}-figure-with-export", gap=None):
        st.plotly_chart(
            figure,
            key=key,
            config=picture_config(name),
            alt=alt,
            on_select=on_click or "ignore",
            selection_mode="points",
        )
        with st.container(key=f"{key}-csv-of-figure", width="content"):
            st.download_button(
                "CSV",
                data=lambda: write_csv(data() if data is not None else drawn_values(figure)),
                file_name=f"moescope-{name}.csv",
                mime="text/csv",
                key=f"{key}-csv",
                on_click="ignore",
                type="tertiary",
                icon=":material/download:",
                help=f"The numbers of this figure. {alt}",
            )


def picture_config(name: str) -> dict[str, Any]:
    """Plotly's button for a picture, and no other: it appears under the pointer."""
    return {
        "displaylogo": False,
        "displayModeBar": "hover",
        "modeBarButtons": [["toImage"]],
        "toImageButtonOptions": {"format": "png", "filename": f"moescope-{name}", "scale": 2},
    }


def write_csv(table: pd.DataFrame) -> bytes:
    """CSV that spreadsheets open with the right letters."""
    return table.to_csv(index=False).encode("utf-8-sig")
