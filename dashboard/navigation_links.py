"""What the browser does with the links of the navigation: a component without any markup of its own."""

from __future__ import annotations

from typing import Final

import streamlit as st

from moescope.dashboard.links import PAGES

_KEY: Final = "navigation-links"
STYLE: Final = f".st-key-{_KEY} {{ position: absolute; height: 0; }}"
"""It takes no room."""

_SCRIPT: Final = """
const find = (event) => event.target.closest?.('[data-testid="stTopNavLink"]')

// A new tab, or a copied link, leads to what this tab looks at.
const carry = (event) => {
  const link = find(event)
  if (link) link.search = window.location.search
}

// Streamlit would take these clicks for plain ones.
const openElsewhere = (event) => {
  if (find(event) && (event.ctrlKey || event.metaKey || event.shiftKey)) event.stopPropagation()
}

// What a page gets on arrival belongs to the step that led to it: one step back leaves the page. So does the
// way from the name of the first page to its place: a step back to the name would lead to the place again.
let nameOfFirst
const push = window.history.pushState
const pushOrComplete = function (state, title, url) {
  const to = new URL(url ?? '', window.location.href)
  const here = window.location
  const completes = (to.pathname === here.pathname && !here.search) || here.pathname.endsWith(nameOfFirst)
  return (completes ? window.history.replaceState : push).call(window.history, state, title, url)
}

export default function ({ data }) {
  nameOfFirst = `/${data.name_of_first}`
  const kinds = ['pointerdown', 'focusin', 'contextmenu']
  kinds.forEach((kind) => document.addEventListener(kind, carry, true))
  document.addEventListener('click', openElsewhere, true)
  window.history.pushState = pushOrComplete
  return () => {
    kinds.forEach((kind) => document.removeEventListener(kind, carry, true))
    document.removeEventListener('click', openElsewhere, true)
    window.history.pushState = push
  }
}
"""

_component = st.components.v2.component("moescope_navigation_links", js=_SCRIPT)


def watch_links() -> None:
    """Let the links of the navigation carry the parameters of the address."""
    _component(key=_KEY, height=1, data={"name_of_first": PAGES[0].address})
