"""What a Prometheus page says of the fleet: the reports' own numbers, of every EP group, at one moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis.assessment import LoadAssessment, read_assessment
from moescope.analysis.expert_load import LoadScope, list_scopes
from moescope.analysis.fleet_looks import FOUND_BY_LOOKS
from moescope.analysis.hot_experts import HotExpert
from moescope.analysis.imbalance import Imbalance, Verdict
from moescope.analysis.placement import PlacementSnapshot
from moescope.analysis.quality import Quality, read_quality
from moescope.analysis.store import Store
from moescope.schemas.fleet import FindingCount, FindingKind, FleetJudgement, LayerBalance, ListedExpert
from moescope.schemas.records import FloatArray
from moescope.schemas.settings import Settings

MAX_SCOPES: Final = 64
"""EP groups and phases that one judgement takes on, the newest of all."""

_MS: Final = 1000


def judge_fleet(store: Store, settings: Settings, *, now_ms: int) -> FleetJudgement:
    """Judge every EP group and phase whose newest window is not too old to be on a page, closer looks apart.

    Raises:
        StoreError: the store cannot answer.
    """
    newest_first = sorted(list_scopes(store), key=lambda scope: -scope.end_ms)
    oldest_ms = now_ms - settings.fleet_page_forget_seconds * _MS
    current = [scope for scope in newest_first if scope.end_ms >= oldest_ms]
    views = [_view(store, scope, settings) for scope in current[:MAX_SCOPES]]
    quality = read_quality(store)
    return FleetJudgement(
        tuple(view.balance for view in views if view.balance is not None),
        _list_hot_experts(views, settings.fleet_page_hot_experts),
        findings=_count_findings(views, quality, oldest_ms),
        left_out=max(len(current) - MAX_SCOPES, 0),
    )


@dataclass(frozen=True, slots=True)
class _View:
    """What is kept of an assessment; its arrays may go before the next is made."""

    scope: LoadScope
    balance: LayerBalance | None
    hot_experts: tuple[HotExpert, ...]
    findings: Counter[FindingKind]


def _view(store: Store, scope: LoadScope, settings: Settings) -> _View:
    assessment = read_assessment(store, scope, settings.fleet_page_window_seconds, settings)
    return _View(
        scope,
        _balance(assessment),
        assessment.hot_experts.top(settings.fleet_page_hot_experts),
        _findings_of(assessment),
    )


def _balance(assessment: LoadAssessment) -> LayerBalance | None:
    placement, imbalance = assessment.placement, assessment.imbalance
    if placement is None or imbalance is None:
        return None
    scope = assessment.window.scope
    has_verdict = np.array([verdict is not Verdict.TOO_LITTLE_DATA for verdict in imbalance.verdicts])
    return LayerBalance(
        *(scope.service, scope.ep_group, scope.phase, assessment.window.layers),
        imbalance.ratio,
        np.where(has_verdict, imbalance.net_ratio, np.nan),
        placement.ranks,
        _load_share(imbalance),
    )


def _load_share(imbalance: Imbalance) -> FloatArray:
    loads = imbalance.rank_loads.sum(axis=0)
    total = loads.sum()
    share: FloatArray = loads / total if total > 0 else np.full(loads.shape, np.nan)
    return share


def _findings_of(assessment: LoadAssessment) -> Counter[FindingKind]:
    found: Counter[FindingKind] = Counter()
    tokens = assessment.window.tokens
    if assessment.imbalance is None:
        found[FindingKind.PLACEMENT_UNKNOWN] = int(tokens.any())
        return found
    found[FindingKind.LAYER_IMBALANCED] = int(assessment.imbalance.is_imbalanced.sum())
    found[FindingKind.EXPERT_HARMFUL] = assessment.hot_experts.num_harmful
    found[FindingKind.EXPERT_UNPLACED] = _num_unplaced(assessment.placement, tokens)
    return found


def _num_unplaced(placement: PlacementSnapshot | None, tokens: np.ndarray) -> int:
    if placement is None:
        return 0
    return int(((tokens > 0) & (placement.replicas.sum(axis=0) == 0)).sum())


def _list_hot_experts(views: Iterable[_View], count: int) -> tuple[ListedExpert, ...]:
    """The worst of all groups, in the order in which each group's own list is."""
    found = [(view.scope, one) for view in views for one in view.hot_experts]
    found.sort(key=lambda item: (not item[1].is_harmful, -item[1].relief, -item[1].capacity_share))
    return tuple(
        ListedExpert(
            *(scope.service, scope.ep_group, scope.phase, one.layer, one.expert),
            times_median=one.times_median,
            capacity_share=one.capacity_share,
            is_harmful=one.is_harmful,
        )
        for scope, one in found[:count]
    )


def _count_findings(views: Sequence[_View], quality: Quality, oldest_ms: float) -> tuple[FindingCount, ...]:
    """Every kind of every group, 0 where nothing was found: an alert can tell that from not having looked."""
    # A group of which nothing is heard any more is gone from the page, with its silent ranks.
    found: dict[tuple[str, str], Counter[FindingKind]] = {
        (one.service, one.ep_group): Counter() for one in quality.instances if one.last_ms >= oldest_ms
    }
    for view in views:
        found.setdefault((view.scope.service, view.scope.ep_group), Counter()).update(view.findings)
    of_kind = {
        FindingKind.SILENT_RANK: quality.silent,
        FindingKind.SILENT_PROCESS: quality.silent_others,
        FindingKind.RANK_WITHOUT_COUNTS: quality.without_counts,
        FindingKind.RANK_NOT_CONSERVED: quality.not_conserved,
    }
    for kind, instances in of_kind.items():
        for one in instances:
            if (one.service, one.ep_group) in found:
                found[one.service, one.ep_group][kind] += 1
    return tuple(
        FindingCount(service, ep_group, kind, counts[kind])
        for (service, ep_group), counts in sorted(found.items())
        for kind in FindingKind
        if kind not in FOUND_BY_LOOKS
    )
