"""The answers of this room in a terminal and as JSON: read, decide, print."""

from __future__ import annotations

from moescope.analysis.assessment import LoadAssessment, read_assessment
from moescope.analysis.expert_load import list_scopes
from moescope.analysis.hotspot_report import HotspotReport
from moescope.analysis.imbalance_report import ImbalanceReport
from moescope.analysis.quality import read_quality
from moescope.analysis.quality_report import QualityReport
from moescope.analysis.report_sections import DEFAULT_LIMIT
from moescope.analysis.store import Store
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
    """Judge the balance of every layer of every scope, or of those of one deployment.

    Raises:
        StoreError: the store cannot answer.
    """
    assessments = _assess_all(store, window_seconds, settings, service)
    return ImbalanceReport(assessments, limit, service, settings.imbalance_ratio)


def quality(store: Store, *, service: str | None = None) -> QualityReport:
    """Check whether the numbers can be believed.

    Raises:
        StoreError: the store cannot answer.
    """
    return QualityReport(read_quality(store, service or ""), service)


def _assess_all(
    store: Store, window_seconds: float, settings: Settings, service: str | None
) -> tuple[LoadAssessment, ...]:
    return tuple(
        read_assessment(store, scope, window_seconds, settings)
        for scope in list_scopes(store)
        if service is None or scope.service == service
    )
