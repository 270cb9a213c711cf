"""What is wrong now: an ordered list of sentences with numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.hot_experts import HotExpert
from moescope.analysis.imbalance import Imbalance
from moescope.analysis.quality import InstanceHealth, Quality
from moescope.schemas.attributes import Phase
from moescope.schemas.settings import Settings

_MAX_NAMED_EXPERTS: Final = 3
_UNPLACED_SHARE: Final = 0.01


class Severity(IntEnum):
    """How much a finding matters; smaller is worse."""

    PROBLEM = 1
    WARNING = 2
    NOTE = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about what is wrong, and where its evidence is.

    Attributes:
        title: one sentence with the numbers that matter.
        detail: how it was decided, and what would help.
        service, ep_group, phase, layer, expert: where to look; None where it concerns more than one.
    """

    severity: Severity
    title: str
    detail: str
    service: str
    ep_group: str | None = None
    phase: Phase | None = None
    layer: int | None = None
    expert: int | None = None


def list_findings(
    assessments: Sequence[LoadAssessment], quality: Quality, settings: Settings
) -> tuple[Finding, ...]:
    """Say what is wrong, the worst first. Empty means that nothing is."""
    groups = {assessment.window.scope.ep_group for assessment in assessments}
    found = list(_quality_findings(quality))
    for assessment in assessments:
        place = _place(assessment, several_groups=len(groups) > 1)
        found += _imbalance_findings(assessment, place, settings)
        found += _hot_expert_findings(assessment, place)
        found += _placement_findings(assessment, place)
    return tuple(sorted(found, key=lambda finding: finding.severity))


def _place(assessment: LoadAssessment, *, several_groups: bool) -> str:
    scope = assessment.window.scope
    return f"{scope.phase.value}, EP group {scope.ep_group}" if several_groups else scope.phase.value


def _imbalance_findings(assessment: LoadAssessment, place: str, settings: Settings) -> Iterator[Finding]:
    imbalance, placement = assessment.imbalance, assessment.placement
    if imbalance is None or placement is None or not imbalance.is_imbalanced.any():
        return
    row = worst_layer_row(imbalance)
    layer = int(assessment.window.layers[row])
    rank = int(placement.ranks[imbalance.hottest_rank[row]])
    count = int(imbalance.is_imbalanced.sum())
    others = f" {words.count(count, 'layer')} of {len(imbalance.ratio)} are above that." if count > 1 else ""
    scope = assessment.window.scope
    yield Finding(
        Severity.PROBLEM,
        f"In {place}, rank {rank} does {imbalance.ratio[row]:.1f} × the work of the mean rank in layer "
        f"{layer}; up to {settings.imbalance_ratio:g} × is acceptable.",
        f"Max / mean over {len(placement.ranks)} ranks in {words.duration(assessment.window.seconds)}, "
        f"{imbalance.net_ratio[row]:.2f} net of the noise floor {imbalance.noise_floor[row]:.2f}; "
        f"mean / max is {imbalance.balancedness[row]:.2f}.{others}",
        *(scope.service, scope.ep_group, scope.phase, layer),
    )


def _hot_expert_findings(assessment: LoadAssessment, place: str) -> Iterator[Finding]:
    hot = assessment.hot_experts
    for one in hot.top(min(hot.num_harmful, _MAX_NAMED_EXPERTS)):
        yield _hot_expert_finding(assessment, place, one)
    more = hot.num_harmful - _MAX_NAMED_EXPERTS
    scope = assessment.window.scope
    if more > 0:
        yield Finding(
            Severity.WARNING,
            f"In {place}, {words.count(more, 'more hot expert')} do harm.",
            "They are ranked on the expert load page.",
            *(scope.service, scope.ep_group, scope.phase),
        )


def _hot_expert_finding(assessment: LoadAssessment, place: str, one: HotExpert) -> Finding:
    scope, imbalance = assessment.window.scope, assessment.imbalance
    row = assessment.window.row_of_layer(one.layer)
    relief = ""
    if imbalance is not None and row is not None and one.relief > 0:
        ratio = imbalance.ratio[row]
        relief = (
            f" Without it the busiest rank of the layer would fall from {ratio:.2f} to "
            f"{ratio - one.relief:.2f} × the mean."
        )
    is_bad = imbalance is not None and row is not None and bool(imbalance.is_imbalanced[row])
    return Finding(
        Severity.PROBLEM if is_bad and one.relief > 0 else Severity.WARNING,
        f"In {place}, expert {one.expert} of layer {one.layer} is hot: one copy takes "
        f"{words.percent(one.capacity_share)} of what a whole rank should do there.",
        f"{one.times_median:.1f} × the median expert of its layer, {words.copies(one.replicas)}"
        f"{_on_ranks(assessment, row, one.expert)}.{relief} One copy more would lower its share to "
        f"{words.percent(one.capacity_share * one.replicas / (one.replicas + 1))}.",
        *(scope.service, scope.ep_group, scope.phase, one.layer, one.expert),
    )


def _placement_findings(assessment: LoadAssessment, place: str) -> Iterator[Finding]:
    scope, placement = assessment.window.scope, assessment.placement
    where = (scope.service, scope.ep_group, scope.phase)
    if placement is None and assessment.window.tokens.any():
        yield Finding(
            Severity.WARNING,
            f"In {place}, no rank has said which experts it holds, so nothing is known about rank loads.",
            "A placement snapshot comes with an engine's first window; a recorder without one sends none.",
            *where,
        )
    elif assessment.unplaced_share > _UNPLACED_SHARE and placement is not None:
        missing = placement.missing_ranks
        yield Finding(
            Severity.WARNING,
            f"In {place}, {words.percent(assessment.unplaced_share)} of the assignments went to experts that "
            "no reporting rank holds.",
            f"{words.listed('rank', missing.tolist())} of {placement.ep_size} never reported a placement; "
            "rank loads leave out what they do."
            if len(missing)
            else "The placement snapshots and the counts disagree about which experts exist.",
            *where,
        )


def _quality_findings(quality: Quality) -> Iterator[Finding]:
    if quality.silent and not quality.reporting:
        lag = words.duration(quality.lag_seconds or 0)
        service = quality.silent[0].service
        yield Finding(
            Severity.PROBLEM,
            f"Nothing has arrived from {service} for {lag}.",
            "What the pages show is the newest that is stored. Is the engine still there, and its endpoint "
            "reachable? `moescope doctor` checks both.",
            service,
        )
    elif quality.silent:
        yield _quality_finding(
            quality.silent, Severity.PROBLEM, "silent: their load is missing from every number"
        )
    if quality.without_counts:
        yield _quality_finding(
            quality.without_counts, Severity.PROBLEM, "counting no experts although tokens are scheduled"
        )
    if quality.not_conserved:
        missing = sum(one.missing_assignments for one in quality.not_conserved)
        expected = sum(one.expected_assignments for one in quality.not_conserved)
        yield _quality_finding(
            quality.not_conserved,
            Severity.PROBLEM,
            f"off by {words.integer(abs(missing))} assignments "
            f"({words.percent(abs(missing) / max(expected, 1))} {'too few' if missing > 0 else 'too many'})",
        )
    if quality.export_failures:
        yield Finding(
            Severity.NOTE,
            f"Not acknowledged: {words.count(quality.export_failures, 'export attempt')}; nothing was lost.",
            "Windows are kept and sent again until they are. Seen on the engines' side.",
            quality.instances[0].service,
        )


def _quality_finding(instances: Sequence[InstanceHealth], severity: Severity, what: str) -> Finding:
    ranks = sorted({one.ep_rank for one in instances})
    verb = "is" if len(ranks) == 1 else "are"
    newest = max(instances, key=lambda one: one.last_ms)
    return Finding(
        severity,
        f"{words.listed('rank', ranks)} of {newest.service} {verb} {what}.",
        f"Last heard of {words.duration(newest.lag_seconds)} ago. "
        "`moescope report quality` lists every process.",
        newest.service,
    )


def worst_layer_row(imbalance: Imbalance) -> int:
    """Position of the layer with the largest net ratio; 0 when no layer has one."""
    return int(np.nan_to_num(imbalance.net_ratio, nan=0.0).argmax())


def has_problem(findings: Iterable[Finding]) -> bool:
    """Whether a check of them fails."""
    return any(finding.severity is Severity.PROBLEM for finding in findings)


def _on_ranks(assessment: LoadAssessment, row: int | None, expert: int) -> str:
    if assessment.placement is None or row is None:
        return ""
    ranks = assessment.placement.ranks_of(row, expert).tolist()
    return f" on {words.listed('rank', ranks).lower()}" if ranks else ""
