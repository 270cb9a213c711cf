"""Cached calls into analysis for what only the overview shows."""

from __future__ import annotations

from typing import Final

import streamlit as st

from moescope.analysis.finding import Finding
from moescope.analysis.headroom import Headroom, read_headroom
from moescope.analysis.prefix_cache_findings import read_prefix_cache_findings
from moescope.analysis.span import Span
from moescope.dashboard import loaders
from moescope.schemas.settings import Settings

_SECONDS: Final = 20
_MANY: Final = 32


def load_headroom(spans: tuple[Span, ...]) -> Headroom | None:
    """What a deployment has left, from one span an EP group.

    Raises:
        StoreError: the store cannot answer.
    """
    return _load_headroom(loaders.get_settings(), spans)


@st.cache_resource(ttl=_SECONDS, max_entries=_MANY, show_spinner=False)
def _load_headroom(settings: Settings, spans: tuple[Span, ...]) -> Headroom | None:
    return read_headroom(loaders.open_shared(settings.dsn), spans, settings)


def load_prefix_cache_findings(span: Span) -> tuple[Finding, ...]:
    """Whether the prefix cache of a deployment finds much less than before.

    Raises:
        StoreError: the store cannot answer.
    """
    return _load_prefix_cache_findings(loaders.get_settings(), span)


@st.cache_resource(ttl=_SECONDS, max_entries=_MANY, show_spinner=False)
def _load_prefix_cache_findings(settings: Settings, span: Span) -> tuple[Finding, ...]:
    return read_prefix_cache_findings(loaders.open_shared(settings.dsn), span, settings)
