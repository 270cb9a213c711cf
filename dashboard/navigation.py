"""The frame around every page: navigation, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import streamlit as st
from streamlit.runtime import pages_manager

from moescope.dashboard import carry, export, login, navigation_links
from moescope.dashboard.links import PAGES

_ICON = str(Path(__file__).parent / "icon.svg")
_STYLE: Final = """
[data-stale='true'] { opacity: 1 !important; }
[data-testid='stMain'] [data-testid='stMainBlockContainer'] { padding-inline: clamp(1rem, 2.5vw, 4rem); }
[data-testid='stButtonGroup'] button { min-height: 2.5rem; }
"""
"""A refresh that takes a moment must not dim what people are reading. Filters fit one row of 1280 pixels, and
all of them are as high as a list."""


def run_chosen_page() -> None:
    """Draw the frame and run the page that the address names."""
    st.set_page_config(page_title="moescope", page_icon=_ICON, layout="wide")
    st.logo(_ICON, size="small")
    st.html(f"<style>{_STYLE} {export.STYLE} {navigation_links.STYLE}</style>")
    is_welcome = login.is_welcome()
    chosen = st.navigation(
        [
            st.Page(page.file, title=page.title, icon=f":material/{page.icon}:", default=page is PAGES[0])
            for page in PAGES
        ],
        position="top" if is_welcome else "hidden",
    )
    if not is_welcome:
        return
    carry.arrive(chosen.url_path)
    navigation_links.watch_links()
    chosen.run()


def lacks_frame() -> bool:
    """Whether a page was run without the frame around it.

    Until ``st.navigation`` was called once, Streamlit runs a file in a folder named ``pages`` by its name:
    so the first visitor of a fresh dashboard who follows a link to a page would see that page alone.
    """
    return bool(getattr(pages_manager.PagesManager, "uses_pages_directory", False))
