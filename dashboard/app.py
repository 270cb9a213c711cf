"""The dashboard: navigation only. Run by ``moescope dashboard``, or ``streamlit run dashboard/app.py``."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from moescope.dashboard.links import EXPERT_LOAD, OVERVIEW

_ICON = str(Path(__file__).parent / "icon.svg")

st.set_page_config(page_title="moescope", page_icon=_ICON, layout="wide")
st.logo(_ICON, size="small")
# A refresh that takes a moment must not dim what people are reading.
st.html("<style>[data-stale='true'] { opacity: 1 !important; }</style>")
st.navigation(
    [
        st.Page(OVERVIEW, title="Overview", icon=":material/monitor_heart:", default=True),
        st.Page(EXPERT_LOAD, title="Expert load", icon=":material/grid_on:"),
    ],
    position="top",
).run()
