"""A login ends on the first page, wherever it began: the tab itself remembers the page that was asked for."""

from __future__ import annotations

from typing import Final

import streamlit as st

BUTTON: Final = "log-in"
"""Key of the button whose click is the beginning of a login."""
MEMORY: Final = "moescope-asked-for"
"""Its name in the storage of the tab, which no other origin can read or write."""
_KEY: Final = "login-way"
STYLE: Final = f".st-key-{_KEY} {{ position: absolute; height: 0; }}"
"""It takes no room."""

_SCRIPT: Final = f"""
const mostMinutes = 10
let isFirstPage = true

// A login that failed comes back to the first page as well: what was asked for before it still holds.
const remember = (event) => {{
  if (isFirstPage || !event.target.closest?.('.st-key-{BUTTON}')) return
  const {{ pathname, search }} = window.location
  window.sessionStorage.setItem('{MEMORY}', JSON.stringify({{ way: pathname + search, at: Date.now() }}))
}}

const leadBack = () => {{
  const asked = JSON.parse(window.sessionStorage.getItem('{MEMORY}'))
  window.sessionStorage.removeItem('{MEMORY}')
  const isRecent = asked && Date.now() - asked.at < mostMinutes * 60_000
  if (isRecent && isFirstPage && !window.location.search) {{
    // With the origin before it, a path of two slashes names no other host.
    window.location.replace(window.location.origin + asked.way)
  }}
}}

export default function ({{ data }}) {{
  isFirstPage = data.is_first_page
  if (data.is_logged_in) leadBack()
  else document.addEventListener('click', remember, true)
  return () => document.removeEventListener('click', remember, true)
}}
"""

_component = st.components.v2.component("moescope_login_way", js=_SCRIPT)


def keep_way(*, is_logged_in: bool, is_first_page: bool) -> None:
    """Let the browser remember the way where a login begins, and go it once where one has ended.

    Args:
        is_logged_in: whether the way is gone, not remembered.
        is_first_page: whether the address names no other page. Only then a login can just have ended.
    """
    _component(key=_KEY, height=1, data={"is_logged_in": is_logged_in, "is_first_page": is_first_page})
