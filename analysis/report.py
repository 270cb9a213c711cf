"""The answers of this room in a terminal and as JSON: read, decide, print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from moescope.analysis.assessment import LoadAssessment, read_assessment
from moescope.analysis.expert_load import LoadScope, list_scopes
from moescope.analysis.failover_answer import make_question, read_failover_report
from moescope.analysis.failover_report import FailoverReport
from moescope.analysis.hotspot_report import HotspotReport
from moescope.analysis.imbalance_answer import read_imbalance_answer
from moescope.analysis.imbalance_report import ImbalanceReport
from moescope.analysis.latency_report import LatencyReport, read_latency_answer
from moescope.analysis.memory_report import MemoryReport, read_memory_answer
from moescope.analysis.quality import read_quality
from moescope.analysis.quality_report import QualityReport
from moescope.analysis.report_sections import DEFAULT_LIMIT
from moescope.analysis.span import Deployment, Span, cover, list_deployments
from moescope.analysis.store import Store
from moescope.analysis.straggler_report import StragglerReport, read_straggler_answer
from moescope.analysis.traffic_report import TrafficReport, read_traffic_answer
from moescope.schemas.settings import Settings


def hotspots(
    store: Store,
    *,
    window_seconds: float,
    settings: Settings,
    service: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> HotspotReport:
    """Find the hot experts of every scope, or of those of one deployment.

    Raises:
        StoreError: the store cannot answer.
    """
    return HotspotReport(_assess_all(store, window_seconds, settings, service), limit, service)


def imbalance(
    store: Store,
    *,
    window_seconds: float,
    settings: Settings,
    service: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> ImbalanceReport:
    """Judge the balance of every layer of every scope, now and over time, or of those of one deployment.

    Raises:
        StoreError: the store cannot answer.
    """
    answers = [
        read_imbalance_answer(store, scope, window_seconds, settings) for scope in _scopes(store, service)
    ]
    return ImbalanceReport(tuple(answers), limit, service, settings)


def quality(store: Store, *, service: str | None = None) -> QualityReport:
    """Check whether the numbers can be believed.

    Raises:
        StoreError: the store cannot answer.
    """
    return QualityReport(read_quality(store, service or ""), service)


def latency(
    store: Store, *, window_seconds: float, settings: Settings, service: str | None = None
) -> LatencyReport:
    """Say how long requests take, what they wait for, and how many keep the latency contract.

    Raises:
        StoreError: the store cannot answer.
    """
    answers = [
        read_latency_answer(store, cover(one, window_seconds), settings)
        for one in _deployments(store, service)
    ]
    return LatencyReport(tuple(answers), service, settings)


def memory(
    store: Store,
    *,
    window_seconds: float,
    settings: Settings,
    service: str | None = None,
    contexts: Sequence[int] = (),
) -> MemoryReport:
    """Say where the bytes of every EP group's ranks are, which pool ends first, and who still fits.

    Raises:
        StoreError: the store cannot answer.
    """
    spans = _groups(store, window_seconds, service)
    answers = [read_memory_answer(store, span, settings, contexts) for span in spans]
    return MemoryReport(tuple(answers), service)


def failover(
    store: Store,
    question: Mapping[str, Any],
    *,
    window_seconds: float,
    settings: Settings,
    service: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> FailoverReport:
    """Say what would be lost with each rank and node of every EP group, or what one loss does.

    Args:
        store: where the data is.
        question: attributes of :class:`~moescope.analysis.failover_answer.FailoverQuestion`, the strategy as
            its word.
        window_seconds: how far to look back.
        settings: thresholds.
        service: one deployment; None: all of them.
        limit: most rows of a table.

    Raises:
        StoreError: the store cannot answer.
        UsageError: a question that contradicts itself, or a rank, node or expert that does not exist.
    """
    return read_failover_report(
        store,
        make_question(**question),
        window_seconds=window_seconds,
        settings=settings,
        service=service,
        limit=limit,
    )


def traffic(
    store: Store, *, window_seconds: float, service: str | None = None, limit: int = DEFAULT_LIMIT
) -> TrafficReport:
    """Say what the ranks of every EP group exchange, and whom they wait for.

    Raises:
        StoreError: the store cannot answer.
    """
    answers = [read_traffic_answer(store, span, limit) for span in _groups(store, window_seconds, service)]
    return TrafficReport(tuple(answers), service)


def stragglers(
    store: Store,
    *,
    window_seconds: float,
    settings: Settings,
    service: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> StragglerReport:
    """Name the ranks, links and nodes of every EP group that the others wait for.

    Raises:
        StoreError: the store cannot answer.
    """
    spans = _groups(store, window_seconds, service)
    answers = [read_straggler_answer(store, span, settings, limit) for span in spans]
    return StragglerReport(tuple(answers), service)


def _groups(store: Store, window_seconds: float, service: str | None) -> Iterator[Span]:
    for deployment in _deployments(store, service):
        for ep_group in deployment.ep_groups:
            yield cover(deployment, window_seconds, ep_group=ep_group)


def _deployments(store: Store, service: str | None) -> tuple[Deployment, ...]:
    return tuple(one for one in list_deployments(store) if service is None or one.service == service)


def _assess_all(
    store: Store, window_seconds: float, settings: Settings, service: str | None
) -> tuple[LoadAssessment, ...]:
    return tuple(read_assessment(store, scope, window_seconds, settings) for scope in _scopes(store, service))


def _scopes(store: Store, service: str | None) -> Iterator[LoadScope]:
    return (scope for scope in list_scopes(store) if service is None or scope.service == service)
