"""Who may look: anybody who reaches the dashboard, or whoever the organisation's login knows.

The login is Streamlit's own (OIDC). It is asked for only where ``MOESCOPE_DASHBOARD_LOGIN`` says so, and then
nothing but the way to it is shown to who has not passed it.
"""

from __future__ import annotations

import importlib
from typing import Final

import streamlit as st
from streamlit.errors import StreamlitAuthError

from moescope.dashboard import loaders, login_way
from moescope.schemas.errors import MoescopeError

_WAY_OUT: Final = (
    "`docs/dashboard.md` says what it needs; `MOESCOPE_DASHBOARD_LOGIN=0` opens the dashboard to everybody."
)


def is_welcome() -> bool:
    """Whether the page may be shown; draws the way to the login, or why there is none, where it may not."""
    try:
        if not loaders.get_settings().dashboard_login:
            return True
    except MoescopeError as error:
        st.error(str(error), icon=":material/error:")
        return False
    problem = _find_problem()
    if problem:
        st.error(f"The dashboard asks for a login, but {problem}. {_WAY_OUT}", icon=":material/error:")
        return False
    if is_logged_in():
        return True
    _show_way_in()
    return False


def is_logged_in() -> bool:
    """Whether the browser brought the cookie of a login."""
    return bool(st.user.get("is_logged_in", False))


def show_way_out() -> None:
    """Draw a button that ends the login, in this browser and where the provider knows how."""
    with st.container(horizontal=True, horizontal_alignment="right"):
        st.button("Log out", type="tertiary", icon=":material/logout:", on_click=st.logout)


def _find_problem() -> str:
    """Why nobody could log in, as the end of a sentence; empty where somebody can."""
    try:
        importlib.import_module("authlib.integrations.starlette_client")
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        return f"the package {package} is not installed here: `pip install 'moescope[login]'`"
    if not st.secrets.load_if_toml_exists() or "auth" not in st.secrets:
        return "Streamlit's `secrets.toml` has no section `[auth]`"
    return ""


def _show_way_in() -> None:
    with st.container(border=True, width=420):
        st.subheader("moescope", anchor=False)
        st.markdown("Expert-level telemetry. Log in to see it.")
        if st.button("Log in", key=login_way.BUTTON, type="primary", icon=":material/login:"):
            try:
                st.login()
            except StreamlitAuthError as error:
                st.error(f"{error} {_WAY_OUT}", icon=":material/error:")
