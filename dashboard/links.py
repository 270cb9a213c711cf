"""Links between pages that carry what they point at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import streamlit as st
from streamlit.errors import StreamlitAPIException

OVERVIEW: Final = "pages/overview.py"
EXPERT_LOAD: Final = "pages/expert_load.py"
LATENCY: Final = "pages/latency.py"
TRAFFIC: Final = "pages/traffic.py"
MEMORY: Final = "pages/memory.py"
HEALTH: Final = "pages/health.py"


def link_to(page: str, label: str, params: Mapping[str, str]) -> None:
    """Draw a link to a page; nothing where a page runs alone, without the others."""
    try:
        st.page_link(page, label=label, icon=":material/arrow_forward:", query_params=dict(params))
    except (StreamlitAPIException, KeyError):
        st.caption(label)
