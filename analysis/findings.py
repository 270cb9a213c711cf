"""What is wrong now: an ordered list of sentences with numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.finding import Finding, Severity
from moescope.analysis.hot_experts import HotExpert
from moescope.analysis.idle_findings import find_dead
from moescope.analysis.imbalance import Imbalance
from moescope.analysis.placement import PlacementSnapshot
from moescope.analysis.quality import Quality
from moescope.analysis.quality_findings import list_quality_findings
from moescope.schemas.settings import Settings

_MAX_NAMED: Final = 3
_UNPLACED_SHARE: Final = 0.01
_NOTABLE_RELIEF: Final = 0.25
"""Worth a note: a hot expert that does no harm yet, without which the busiest rank would shed so much."""

_SEE_PAGE: Final = "The Experts page lists them."


def list_findings(
    assessments: Sequence[LoadAssessment],
    quality: Quality,
    settings: Settings,
    others: Iterable[Finding] = (),
) -> tuple[Finding, ...]:
    """Say what is wrong, the worst first. Empty means that nothing is.

    ``others`` are of what is no expert load, such as memory; they are put in their places.
    """
    found = [*list_quality_findings(quality), *others]
    groups = {assessment.window.scope.ep_group for assessment in assessments}
    for assessment in assessments:
        found += _Observer(assessment, settings, names_group=len(groups) > 1).findings()
    return tuple(sorted(found, key=lambda finding: (finding.severity, -finding.weight)))


def has_problem(findings: Iterable[Finding]) -> bool:
    """Whether a check of them fails."""
    return any(finding.severity is Severity.PROBLEM for finding in findings)


def worst_layer_row(imbalance: Imbalance) -> int:
    """Position of the layer with the largest net ratio; 0 when no layer has one."""
    return int(np.nan_to_num(imbalance.net_ratio, nan=0.0).argmax())


@dataclass(frozen=True, slots=True)
class _Observer:
    """Puts one assessment into sentences."""

    assessment: LoadAssessment
    settings: Settings
    names_group: bool

    def findings(self) -> Iterator[Finding]:
        dead = find_dead(self.assessment, self.settings, self._scope_name())
        if dead is not None:
            yield dead
        placement, imbalance = self.assessment.placement, self.assessment.imbalance
        if placement is None or imbalance is None:
            if self.assessment.window.tokens.any():
                yield self._unknown_placement()
            return
        yield from self._imbalances(imbalance, placement)
        yield from self._hot_experts(imbalance, placement)
        if self.assessment.unplaced_share > _UNPLACED_SHARE:
            yield self._unplaced(placement)

    def _imbalances(self, imbalance: Imbalance, placement: PlacementSnapshot) -> Iterator[Finding]:
        rows = np.flatnonzero(imbalance.is_imbalanced)
        rows = rows[np.argsort(-imbalance.net_ratio[rows], kind="stable")]
        for row in rows[:_MAX_NAMED]:
            yield self._imbalance(int(row), imbalance, placement)
        if len(rows) > _MAX_NAMED:
            more = words.count(len(rows) - _MAX_NAMED, "more layer")
            yield self._finding(Severity.PROBLEM, f"{self._scope_name()}: imbalance in {more}.", _SEE_PAGE)

    def _imbalance(self, row: int, imbalance: Imbalance, placement: PlacementSnapshot) -> Finding:
        layer = int(self.assessment.window.layers[row])
        rank = int(placement.ranks[imbalance.hottest_rank[row]])
        cause = self._cause(layer)
        because = "" if cause is None else f" because of expert {cause.expert}"
        return self._finding(
            Severity.PROBLEM,
            f"{self._place(layer)}: rank {rank} does {imbalance.ratio[row]:.1f} × the mean rank's "
            f"work{because}.",
            ("" if cause is None else self._explain(cause, row, imbalance, placement) + " ")
            + f"Up to {self.settings.imbalance_ratio:g} × is acceptable: max / mean over "
            f"{len(placement.ranks)} ranks in {words.duration(self.assessment.window.seconds)}, net of a "
            f"noise floor of {imbalance.noise_floor[row]:.2f}. "
            f"Mean / max is {imbalance.balancedness[row]:.2f}.",
            layer=layer,
            expert=None if cause is None else cause.expert,
            weight=float(imbalance.net_ratio[row]),
        )

    def _hot_experts(self, imbalance: Imbalance, placement: PlacementSnapshot) -> Iterator[Finding]:
        causes = {(one.layer, one.expert) for one in self._named_causes(imbalance)}
        hot = self.assessment.hot_experts
        others = [one for one in hot.top(hot.num_harmful) if (one.layer, one.expert) not in causes]
        for one in others[:_MAX_NAMED]:
            row = self.assessment.window.row_of_layer(one.layer) or 0
            yield self._finding(
                Severity.WARNING,
                f"{self._place(one.layer)}: expert {one.expert} is hot; one copy takes "
                f"{words.percent(one.capacity_share)} of what a whole rank should do.",
                self._explain(one, row, imbalance, placement),
                layer=one.layer,
                expert=one.expert,
                weight=one.capacity_share,
            )
        if len(others) > _MAX_NAMED:
            more = words.count(len(others) - _MAX_NAMED, "more harmful hot expert")
            yield self._finding(Severity.WARNING, f"{self._scope_name()}: {more}.", _SEE_PAGE)
        harmless = hot.top(hot.num_harmful + 1)[hot.num_harmful :]
        for one in harmless:
            if one.relief >= _NOTABLE_RELIEF:
                yield self._harmless(one, imbalance, placement)

    def _harmless(self, one: HotExpert, imbalance: Imbalance, placement: PlacementSnapshot) -> Finding:
        row = self.assessment.window.row_of_layer(one.layer) or 0
        return self._finding(
            Severity.NOTE,
            f"{self._place(one.layer)}: expert {one.expert} gets {one.times_median:.1f} × its layer's median "
            "expert; the ranks still share the layer well enough.",
            self._explain(one, row, imbalance, placement),
            layer=one.layer,
            expert=one.expert,
            weight=one.relief,
        )

    def _named_causes(self, imbalance: Imbalance) -> Iterator[HotExpert]:
        for row in np.flatnonzero(imbalance.is_imbalanced):
            cause = self._cause(int(self.assessment.window.layers[row]))
            if cause is not None:
                yield cause

    def _cause(self, layer: int) -> HotExpert | None:
        """The harmful expert without which the layer's busiest rank would gain most."""
        hot = self.assessment.hot_experts
        harmful = (one for one in hot.top(hot.num_harmful) if one.layer == layer and one.relief > 0)
        return next(harmful, None)

    def _explain(self, one: HotExpert, row: int, imbalance: Imbalance, placement: PlacementSnapshot) -> str:
        ranks = words.listed("rank", placement.ranks_of(row, one.expert).tolist()).lower()
        without = (
            f" Without it the layer's ratio would fall from {imbalance.ratio[row]:.1f} to "
            f"{imbalance.ratio[row] - one.relief:.1f}."
            if one.relief > 0
            else ""
        )
        fewer = one.capacity_share * one.replicas / (one.replicas + 1)
        return (
            f"Expert {one.expert} gets {one.times_median:.1f} × the layer's median expert on "
            f"{words.copies(one.replicas)} ({ranks}): {words.percent(one.capacity_share)} of a rank's even "
            f"share on each.{without} One copy more would make that {words.percent(fewer)}."
        )

    def _unknown_placement(self) -> Finding:
        return self._finding(
            Severity.WARNING,
            f"{self._scope_name()}: no rank has said which experts it holds; rank loads are unknown.",
            "A placement snapshot comes with an engine's first window; a recorder without one sends none.",
        )

    def _unplaced(self, placement: PlacementSnapshot) -> Finding:
        missing = placement.missing_ranks.tolist()
        return self._finding(
            Severity.WARNING,
            f"{self._scope_name()}: {words.percent(self.assessment.unplaced_share)} of the "
            "assignments went to experts that no reporting rank holds.",
            f"{words.listed('rank', missing)} of {placement.ep_size} never reported a placement; rank loads "
            "leave out what they do."
            if missing
            else "The placement snapshots and the counts disagree about which experts exist.",
        )

    def _scope_name(self) -> str:
        place = self._place()
        return place[:1].upper() + place[1:]

    def _place(self, layer: int | None = None) -> str:
        scope = self.assessment.window.scope
        parts = [] if layer is None else [f"Layer {layer}"]
        parts.append(scope.phase.value)
        if self.names_group:
            parts.append(f"EP group {scope.ep_group}")
        return ", ".join(parts)

    def _finding(
        self,
        severity: Severity,
        title: str,
        detail: str,
        *,
        layer: int | None = None,
        expert: int | None = None,
        weight: float = 0.0,
    ) -> Finding:
        scope = self.assessment.window.scope
        where = (scope.service, scope.ep_group, scope.phase, layer, expert)
        return Finding(severity, title, detail, weight, *where)
