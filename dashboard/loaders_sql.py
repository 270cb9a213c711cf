"""The views that the SQL page lists."""

from __future__ import annotations

import streamlit as st

from moescope.analysis.sql_views import DocumentedView, read_views
from moescope.dashboard import loaders

_VIEWS_SECONDS = 600
"""Views change with a migration."""


def load_views() -> tuple[DocumentedView, ...]:
    """The views for people, as the store describes them.

    Raises:
        StoreError: the store cannot answer.
    """
    return _load_views(loaders.get_settings().dsn)


@st.cache_resource(ttl=_VIEWS_SECONDS, max_entries=4, show_spinner=False)
def _load_views(dsn: str) -> tuple[DocumentedView, ...]:
    return read_views(loaders.open_shared(dsn))
