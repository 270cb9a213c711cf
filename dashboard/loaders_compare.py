"""Cached calls into analysis for the page that compares two windows."""

from __future__ import annotations

from typing import Final

import streamlit as st

from moescope.analysis.comparison import Comparison, ComparisonSide, compare
from moescope.analysis.memory import PoolHistory, read_pool_history
from moescope.analysis.prefix_cache import PrefixCache, read_prefix_cache
from moescope.analysis.span import Deployment, Span, cover
from moescope.dashboard import loaders
from moescope.dashboard.loaders import FRESH_SECONDS, get_settings, open_shared
from moescope.dashboard.view import find_scope
from moescope.schemas.attributes import Phase
from moescope.schemas.settings import Settings

_MANY, _FEW = 32, 12
_MINUTE_MS: Final = 60_000


def load_comparison(a: ComparisonSide, b: ComparisonSide, phase: Phase) -> Comparison:
    """Two windows compared, once for every viewer."""
    return _load_comparison(a, b, get_settings(), a.span, b.span, phase)


@st.cache_resource(ttl=FRESH_SECONDS, max_entries=_FEW, show_spinner=False)
def _load_comparison(
    _a: ComparisonSide,
    _b: ComparisonSide,
    settings: Settings,
    span_of_a: Span,  # noqa: ARG001 - part of the cache's key, as are those below
    span_of_b: Span,  # noqa: ARG001
    phase: Phase,  # noqa: ARG001
) -> Comparison:
    return compare(_a, _b, settings)


def load_side(
    deployment: Deployment, ep_group: str, phase: Phase, window_seconds: float, end_ms: int
) -> ComparisonSide:
    """Everything that is compared of one window.

    Raises:
        StoreError: the store cannot answer.
    """
    span = cover(deployment, window_seconds, end_ms=end_ms, ep_group=ep_group)
    rates = loaders.load_token_rates(deployment.service, start_ms=span.start_ms, end_ms=span.end_ms)
    pools, cache = _load_memory_series(get_settings().dsn, span)
    scope = find_scope(loaders.load_scopes(), deployment.service, ep_group, phase)
    has_load = scope is not None and scope.first_ms + _MINUTE_MS <= min(end_ms, scope.end_ms)
    return ComparisonSide(
        span,
        # Requests are a deployment's: a front end serves all of its groups.
        loaders.load_latency(cover(deployment, window_seconds, end_ms=end_ms)),
        tuple(rate for rate in rates if rate.ep_group == ep_group),
        *(pools, cache),
        loaders.load_assessment(scope, window_seconds, end_ms) if scope is not None and has_load else None,
    )


@st.cache_resource(ttl=FRESH_SECONDS, max_entries=_MANY, show_spinner=False)
def _load_memory_series(dsn: str, span: Span) -> tuple[PoolHistory, PrefixCache]:
    store = open_shared(dsn)
    return read_pool_history(store, span), read_prefix_cache(store, span)
