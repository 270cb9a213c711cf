"""Hot experts, printed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.hot_experts import HotExpert
from moescope.analysis.report_sections import DEFAULT_WIDTH, describe_scope, print_sections
from moescope.analysis.span import plan_options
from moescope.analysis.text_table import Column, render_table

_COLUMNS: Final = (
    *(Column("layer"), Column("expert"), Column("assignments"), Column("× median"), Column("share")),
    *(Column("relief"), Column("copies"), Column("ranks", left=True), Column("", left=True)),
)


_LEGEND: Final = (
    "× median: of its layer's experts; share: what one copy takes of a rank's even part of the layer; "
    "relief: by so much max / mean of the layer would fall without it."
)


@dataclass(frozen=True, slots=True)
class HotspotReport:
    """Hot experts of every scope in a window, the most harmful first."""

    assessments: tuple[LoadAssessment, ...]
    limit: int
    service: str | None

    @property
    def has_problem(self) -> bool:
        """Whether any hot expert does harm."""
        return any(assessment.hot_experts.num_harmful for assessment in self.assessments)

    def to_text(self, width: int = DEFAULT_WIDTH) -> str:
        """Tables for a terminal of that width."""
        return print_sections(self.assessments, self.service, lambda one: self._section(one, width))

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape: ``scopes[] → experts[]``; shares and ratios are plain numbers."""
        return {"scopes": [describe_scope(one) | self._experts_dict(one) for one in self.assessments]}

    def _section(self, assessment: LoadAssessment, width: int) -> Iterator[str]:
        hot = assessment.hot_experts
        yield textwrap.fill(_verdict(assessment), width)
        if len(hot):
            yield render_table(_COLUMNS, [_hot_row(assessment, one) for one in hot.top(self.limit)], width)
        if len(hot) > self.limit:
            yield f"… and {words.count(len(hot) - self.limit, 'more hot expert')}."
        if len(hot):
            yield textwrap.fill(_LEGEND, width)

    def _experts_dict(self, assessment: LoadAssessment) -> dict[str, Any]:
        hot = assessment.hot_experts
        return {
            "hot_experts": len(hot),
            "harmful_experts": hot.num_harmful,
            "experts": [
                {
                    "layer": one.layer,
                    "expert": one.expert,
                    "assignments": one.tokens,
                    "times_median": one.times_median,
                    "replicas": one.replicas,
                    "capacity_share": one.capacity_share,
                    "relief": one.relief,
                    "harmful": one.is_harmful,
                }
                for one in hot.top(self.limit)
            ],
        }


def _verdict(assessment: LoadAssessment) -> str:
    hot = assessment.hot_experts
    found = words.count(len(hot), "hot expert")
    if assessment.placement is None:
        return f"{found}; no rank has said which experts it holds, so what they do to ranks is unknown."
    if not hot.num_harmful:
        return f"{found}, 0 harmful: no copy takes much of a rank, and none makes a layer imbalanced."
    scope = assessment.window.scope
    plan = f"`moescope plan {plan_options(scope.service, scope.ep_group)}`"
    return f"{found}, {words.integer(hot.num_harmful)} harmful. Where copies help: {plan}."


def _hot_row(assessment: LoadAssessment, one: HotExpert) -> list[str]:
    row = assessment.window.row_of_layer(one.layer)
    placement = assessment.placement
    ranks = [] if placement is None or row is None else placement.ranks_of(row, one.expert).tolist()
    return [
        str(one.layer),
        str(one.expert),
        words.integer(one.tokens),
        f"{one.times_median:.1f} ×",
        words.percent(one.capacity_share),
        f"{one.relief:.2f}" if one.relief else "–",
        str(one.replicas),
        ", ".join(map(str, ranks)),
        "harmful" if one.is_harmful else "",
    ]
