"""Cached calls into analysis. Results are frozen, so every viewer shares them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import streamlit as st

from moescope.analysis.assessment import LoadAssessment, assess_load
from moescope.analysis.cache_state import CacheHistory, read_cache_history
from moescope.analysis.computed_tokens import ComputedTokens, read_computed_tokens
from moescope.analysis.expert_costs import ExpertCosts, read_expert_costs
from moescope.analysis.expert_history import ExpertHistory, trace_expert
from moescope.analysis.expert_load import (
    ExpertLoadWindow,
    LayerHistory,
    LoadScope,
    list_scopes,
    read_layer_history,
    read_window,
)
from moescope.analysis.failover import Failovers, read_failovers
from moescope.analysis.finding import Finding
from moescope.analysis.gpus import Gpu, read_gpus
from moescope.analysis.latency_report import LatencyAnswer, read_latency_answer
from moescope.analysis.memory import PoolHistory, read_pool_history
from moescope.analysis.memory_findings import read_memory_findings
from moescope.analysis.memory_report import MemoryAnswer, read_memory_answer
from moescope.analysis.placement import PlacementSnapshot, read_placement
from moescope.analysis.quality import Quality, read_quality
from moescope.analysis.replan_findings import read_replan_findings
from moescope.analysis.report_sections import DEFAULT_LIMIT
from moescope.analysis.span import Deployment, Span, cover, list_deployments
from moescope.analysis.store import Store, open_store
from moescope.analysis.straggler_report import StragglerAnswer, read_straggler_answer
from moescope.analysis.token_rate import TokenRate, read_token_rates
from moescope.analysis.traffic_report import TrafficAnswer, read_traffic_answer
from moescope.schemas.settings import Settings, load_settings

FRESH_SECONDS: Final = 8
"""Just below the interval of the refresh: each round reads once, whoever looks."""

_PLACEMENT_SECONDS: Final = 60
_REPLAN_SECONDS: Final = 300
"""The search takes seconds, and what it finds holds for minutes: the load of one window among many."""

_HEALTH_SECONDS: Final = 20
_MANY: Final = 32
_FEW: Final = 12
"""Entries with a placement behind them: about 10 MB each for K3 on 64 ranks."""


def get_settings() -> Settings:
    """Read the settings from the environment.

    Raises:
        SettingError: an unknown name or a bad value.
    """
    return load_settings()


@st.cache_resource(show_spinner=False, on_release=lambda store: store.close(), max_entries=4)
def _open(dsn: str) -> Store:
    return open_store(dsn)


def open_shared(dsn: str) -> Store:
    """The one store that is open at a DSN, for whoever reads from it.

    Raises:
        StoreError: nobody answers there.
    """
    return _open(dsn)


def release_stores() -> None:
    """Forget everything that was read and close the stores."""
    st.cache_resource.clear()


def load_scopes() -> tuple[LoadScope, ...]:
    """Whose expert load is stored.

    Raises:
        StoreError: the store cannot answer.
    """
    return _load_scopes(get_settings().dsn)


@st.cache_resource(ttl=FRESH_SECONDS, max_entries=4, show_spinner=False)
def _load_scopes(dsn: str) -> tuple[LoadScope, ...]:
    return list_scopes(_open(dsn))


def load_assessment(scope: LoadScope, window_seconds: float, end_ms: int | None) -> LoadAssessment:
    """One scope's window, read and judged.

    Raises:
        StoreError: the store cannot answer.
    """
    return _load_assessment(get_settings(), scope, window_seconds, end_ms)


@st.cache_resource(ttl=FRESH_SECONDS, max_entries=_FEW, show_spinner=False)
def _load_assessment(
    settings: Settings, scope: LoadScope, window_seconds: float, end_ms: int | None
) -> LoadAssessment:
    window = read_window(_open(settings.dsn), scope, window_seconds, settings, end_ms=end_ms)
    layers = tuple(window.layers.tolist())
    placement = _load_placement(
        window, settings.dsn, scope.service, scope.ep_group, layers=layers, end_ms=end_ms
    )
    return assess_load(window, placement, settings)


def load_replan_findings(
    assessments: Sequence[LoadAssessment], window_seconds: float, end_ms: int | None
) -> tuple[Finding, ...]:
    """Where moving a few experts is worth it now, of the scopes that were assessed.

    Raises:
        StoreError: the store cannot answer.
    """
    scopes = tuple((one.window.scope.service, one.window.scope.ep_group) for one in assessments)
    return _load_replan_findings(assessments, get_settings(), scopes, window_seconds, end_ms)


@st.cache_resource(ttl=_REPLAN_SECONDS, max_entries=_MANY, show_spinner=False)
def _load_replan_findings(
    _assessments: Sequence[LoadAssessment],
    settings: Settings,
    scopes: tuple[tuple[str, str], ...],  # noqa: ARG001 - part of the cache's key, as are those below
    window_seconds: float,  # noqa: ARG001
    end_ms: int | None,  # noqa: ARG001
) -> tuple[Finding, ...]:
    return read_replan_findings(_open(settings.dsn), _assessments, settings)


@st.cache_resource(ttl=_PLACEMENT_SECONDS, max_entries=_FEW, show_spinner=False)
def _load_placement(
    _window: ExpertLoadWindow,
    dsn: str,
    service: str,  # noqa: ARG001 - part of the cache's key, as are those below
    ep_group: str,  # noqa: ARG001
    *,
    layers: tuple[int, ...],  # noqa: ARG001
    end_ms: int | None,  # noqa: ARG001
) -> PlacementSnapshot | None:
    return read_placement(_open(dsn), _window)


def load_quality(service: str) -> Quality:
    """Whether a deployment's numbers can be believed.

    Raises:
        StoreError: the store cannot answer.
    """
    return _load_quality(get_settings().dsn, service)


@st.cache_resource(ttl=_HEALTH_SECONDS, max_entries=_MANY, show_spinner=False)
def _load_quality(dsn: str, service: str) -> Quality:
    return read_quality(_open(dsn), service)


def load_token_rates(service: str, *, start_ms: int, end_ms: int) -> tuple[TokenRate, ...]:
    """Tokens a second of a deployment.

    Raises:
        StoreError: the store cannot answer.
    """
    return _load_token_rates(get_settings().dsn, service, start_ms, end_ms)


@st.cache_resource(ttl=FRESH_SECONDS, max_entries=_MANY, show_spinner=False)
def _load_token_rates(dsn: str, service: str, start_ms: int, end_ms: int) -> tuple[TokenRate, ...]:
    return read_token_rates(_open(dsn), service, start_ms=start_ms, end_ms=end_ms)


def load_expert_history(assessment: LoadAssessment, layer: int, expert: int) -> ExpertHistory | None:
    """One expert through the window of an assessment; None when the model has no such layer.

    Raises:
        StoreError: the store cannot answer.
    """
    window = assessment.window
    row = window.row_of_layer(layer)
    if row is None:
        return None
    history = _load_layer_history(
        get_settings(), window.scope, layer, start_ms=window.start_ms, end_ms=window.end_ms
    )
    return trace_expert(history, expert, assessment.placement, row)


@st.cache_resource(ttl=FRESH_SECONDS, max_entries=_MANY, show_spinner=False)
def _load_layer_history(
    settings: Settings, scope: LoadScope, layer: int, *, start_ms: int, end_ms: int
) -> LayerHistory:
    return read_layer_history(_open(settings.dsn), scope, layer, settings, start_ms=start_ms, end_ms=end_ms)


def load_deployments() -> tuple[Deployment, ...]:
    """Whose telemetry is stored, of whatever kind.

    Raises:
        StoreError: the store cannot answer.
    """
    return _load_deployments(get_settings().dsn)


@st.cache_resource(ttl=FRESH_SECONDS, max_entries=4, show_spinner=False)
def _load_deployments(dsn: str) -> tuple[Deployment, ...]:
    return list_deployments(_open(dsn))


def load_latency(span: Span) -> LatencyAnswer:
    """Latency of requests, dispatch and steps, and goodput.

    Raises:
        StoreError: the store cannot answer.
    """
    return _load_latency(get_settings(), span)


@st.cache_resource(ttl=FRESH_SECONDS, max_entries=_MANY, show_spinner=False)
def _load_latency(settings: Settings, span: Span) -> LatencyAnswer:
    return read_latency_answer(_open(settings.dsn), span, settings)


def load_traffic(span: Span) -> TrafficAnswer:
    """What the ranks of one EP group exchange, and whom they wait for.

    Raises:
        StoreError: the store cannot answer.
    """
    return _load_traffic(get_settings().dsn, span)


@st.cache_resource(ttl=FRESH_SECONDS, max_entries=_FEW, show_spinner=False)
def _load_traffic(dsn: str, span: Span) -> TrafficAnswer:
    return read_traffic_answer(_open(dsn), span, DEFAULT_LIMIT)


def load_stragglers(span: Span) -> StragglerAnswer:
    """What the ranks of one EP group wait for.

    Raises:
        StoreError: the store cannot answer.
    """
    return _load_stragglers(get_settings(), span)


@st.cache_resource(ttl=_HEALTH_SECONDS, max_entries=_MANY, show_spinner=False)
def _load_stragglers(settings: Settings, span: Span) -> StragglerAnswer:
    return read_straggler_answer(_open(settings.dsn), span, settings, DEFAULT_LIMIT)


def load_memory(span: Span) -> tuple[MemoryAnswer, PoolHistory, CacheHistory]:
    """The memory of one EP group's ranks, now and over time.

    Raises:
        StoreError: the store cannot answer.
    """
    return _load_memory(get_settings(), span)


@st.cache_resource(ttl=FRESH_SECONDS, max_entries=_MANY, show_spinner=False)
def _load_memory(settings: Settings, span: Span) -> tuple[MemoryAnswer, PoolHistory, CacheHistory]:
    store = _open(settings.dsn)
    return (
        read_memory_answer(store, span, settings),
        read_pool_history(store, span),
        read_cache_history(store, span),
    )


def load_memory_findings(deployment: Deployment, window_seconds: float) -> tuple[Finding, ...]:
    """What is full, and what will be soon, in every EP group of a deployment.

    Raises:
        StoreError: the store cannot answer.
    """
    return _load_memory_findings(get_settings(), deployment, window_seconds)


@st.cache_resource(ttl=_HEALTH_SECONDS, max_entries=_MANY, show_spinner=False)
def _load_memory_findings(
    settings: Settings, deployment: Deployment, window_seconds: float
) -> tuple[Finding, ...]:
    store = _open(settings.dsn)
    return tuple(
        finding
        for ep_group in deployment.ep_groups
        for finding in read_memory_findings(
            store, cover(deployment, window_seconds, ep_group=ep_group), settings
        )
    )


def load_health(span: Span) -> tuple[ComputedTokens, tuple[Gpu, ...], Failovers]:
    """Token rows, GPUs and failovers of a deployment.

    Raises:
        StoreError: the store cannot answer.
    """
    return _load_health(get_settings().dsn, span)


@st.cache_resource(ttl=FRESH_SECONDS, max_entries=_MANY, show_spinner=False)
def _load_health(dsn: str, span: Span) -> tuple[ComputedTokens, tuple[Gpu, ...], Failovers]:
    store = _open(dsn)
    return read_computed_tokens(store, span), read_gpus(store, span), read_failovers(store, span)


def load_expert_costs(span: Span, layer: int, expert: int) -> ExpertCosts:
    """One expert's time, memory and failovers.

    Raises:
        StoreError: the store cannot answer.
    """
    return _load_expert_costs(get_settings().dsn, span, layer, expert)


@st.cache_resource(ttl=FRESH_SECONDS, max_entries=_MANY, show_spinner=False)
def _load_expert_costs(dsn: str, span: Span, layer: int, expert: int) -> ExpertCosts:
    return read_expert_costs(_open(dsn), span, layer, expert)
