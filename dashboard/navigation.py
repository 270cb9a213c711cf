"""The frame around every page: navigation, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import streamlit as st
from streamlit.runtime import pages_manager

from moescope.dashboard import carry, export, login, login_way, navigation_links
from moescope.dashboard.links import PAGES, Page

_ICON = str(Path(__file__).parent / "icon.svg")
_STYLE: Final = """
[data-stale='true'] { opacity: 1 !important; }
[data-testid='stMain'] [data-testid='stMainBlockContainer'] { padding-inline: clamp(1rem, 2.5vw, 4rem); }
[data-testid='stButtonGroup'] button { min-height: 2.5rem; }
[data-testid^='stBaseButton-primary'] { color: light-dark(#ffffff, #11161c); }
"""
"""A refresh that takes a moment must not dim what people are reading. Filters fit one row of 1280 pixels, and
all of them are as high as a list. White on the dark theme's light blue could hardly be read."""


def run_chosen_page() -> None:
    """Draw the frame and run the page that the address names."""
    if lacks_frame():
        _choose_page("hidden")
        st.rerun()
    st.set_page_config(page_title="moescope", page_icon=_ICON, layout="wide")
    st.logo(_ICON, size="small")
    st.html(f"<style>{_STYLE} {export.STYLE} {navigation_links.STYLE} {login_way.STYLE}</style>")
    is_welcome, is_logged_in = login.is_welcome(), login.is_logged_in()
    chosen = _choose_page("top" if is_welcome else "hidden")
    if is_logged_in or not is_welcome:
        login_way.keep_way(is_logged_in=is_logged_in, is_first_page=not chosen.url_path)
    if not is_welcome:
        return
    carry.arrive(chosen.url_path)
    navigation_links.watch_links()
    chosen.run()
    if is_logged_in:
        login.show_way_out()


def lacks_frame() -> bool:
    """Whether a page was run without the frame around it.

    Until ``st.navigation`` was called once, Streamlit runs a file in a folder named ``pages`` by its name:
    so the first visitor of a fresh dashboard who follows a link to a page would see that page alone. A frame
    that is drawn around it then is not the frame of the next run: the first click on it would be lost.
    """
    return bool(getattr(pages_manager.PagesManager, "uses_pages_directory", False))


def _choose_page(position: Literal["top", "hidden"]) -> st.Page:
    """Declare all pages; the one that the address names."""
    first = PAGES[0]
    named = st.Page(_open_first_page, title=first.title, url_path=first.address, visibility="hidden")
    return st.navigation([*map(_declare, PAGES), named], position=position)


def _declare(page: Page) -> st.Page:
    """The first page stands at the base, and must leave its name to the page that leads there."""
    is_first = page is PAGES[0]
    return st.Page(
        page.file,
        title=page.title,
        icon=f":material/{page.icon}:",
        url_path="" if is_first else page.address,
        default=is_first,
    )


def _open_first_page() -> None:
    """People type the name of the first page as they do those of the others; parameters come along."""
    st.switch_page(PAGES[0].file, query_params=st.query_params.to_dict())
