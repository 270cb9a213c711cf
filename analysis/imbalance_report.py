"""The balance of layers, printed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.imbalance import BALANCEDNESS_FORMULA, RATIO_FORMULA, Imbalance
from moescope.analysis.report_sections import DEFAULT_WIDTH, describe_scope, print_sections
from moescope.analysis.skew_report import print_skew, skew_dicts
from moescope.analysis.text_table import Column, render_table

_COLUMNS: Final = (
    *(Column("layer"), Column("ratio"), Column("noise floor"), Column("net"), Column("mean / max")),
    *(Column("busiest rank"), Column("mean rank load"), Column("verdict", left=True)),
)


@dataclass(frozen=True, slots=True)
class ImbalanceReport:
    """The balance of every layer of every scope in a window, the worst first."""

    assessments: tuple[LoadAssessment, ...]
    limit: int
    service: str | None
    acceptable_ratio: float

    @property
    def has_problem(self) -> bool:
        """Whether any layer is imbalanced."""
        return any(
            one.imbalance is not None and one.imbalance.is_imbalanced.any() for one in self.assessments
        )

    def to_text(self, width: int = DEFAULT_WIDTH) -> str:
        """Tables for a terminal of that width."""
        return print_sections(self.assessments, self.service, lambda one: self._section(one, width))

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape: ``scopes[] → layers[]`` and ``skew[]``, every layer; null without tokens."""
        return {
            "formula": {"ratio": RATIO_FORMULA, "balancedness": BALANCEDNESS_FORMULA},
            "acceptable_ratio": self.acceptable_ratio,
            "scopes": [
                describe_scope(one) | {"layers": _layers_dict(one), "skew": skew_dicts(one)}
                for one in self.assessments
            ],
        }

    def _section(self, assessment: LoadAssessment, width: int) -> Iterator[str]:
        yield from self._balance(assessment, width)
        yield from print_skew(assessment)

    def _balance(self, assessment: LoadAssessment, width: int) -> Iterator[str]:
        imbalance, placement = assessment.imbalance, assessment.placement
        if imbalance is None or placement is None:
            yield "No rank has said which experts it holds, so rank loads are unknown."
            return
        yield textwrap.fill(
            f"{words.count(int(imbalance.is_imbalanced.sum()), 'imbalanced layer')} of "
            f"{len(imbalance.ratio)} over {len(placement.ranks)} ranks. "
            f"Ratio: {RATIO_FORMULA}, acceptable up to {self.acceptable_ratio:g} net of noise. "
            f"vLLM and SGLang report {BALANCEDNESS_FORMULA}.",
            width,
        )
        rows = _layer_rows(assessment, imbalance)[: self.limit]
        yield render_table(_COLUMNS, rows, width)
        if len(imbalance.ratio) > self.limit:
            yield f"… and {words.count(len(imbalance.ratio) - self.limit, 'more layer')}, better balanced."


def _layer_rows(assessment: LoadAssessment, imbalance: Imbalance) -> list[list[str]]:
    placement, window = assessment.placement, assessment.window
    ranks = np.empty(0) if placement is None else placement.ranks
    order = np.argsort(-np.nan_to_num(imbalance.net_ratio, nan=0.0), kind="stable")
    return [
        [
            str(window.layers[row]),
            _number(imbalance.ratio[row]),
            _number(imbalance.noise_floor[row]),
            _number(imbalance.net_ratio[row]),
            _number(imbalance.balancedness[row]),
            str(ranks[imbalance.hottest_rank[row]]),
            words.compact(imbalance.rank_loads[row].mean()),
            imbalance.verdicts[row].value,
        ]
        for row in order
    ]


def _layers_dict(assessment: LoadAssessment) -> list[dict[str, Any]]:
    imbalance, placement = assessment.imbalance, assessment.placement
    if imbalance is None or placement is None:
        return []
    return [
        {
            "layer": int(layer),
            "ratio": _json_number(imbalance.ratio[row]),
            "noise_floor": _json_number(imbalance.noise_floor[row]),
            "net_ratio": _json_number(imbalance.net_ratio[row]),
            "balancedness": _json_number(imbalance.balancedness[row]),
            "hottest_rank": int(placement.ranks[imbalance.hottest_rank[row]]),
            "mean_rank_load": float(imbalance.rank_loads[row].mean()),
            "design_effect": _json_number(assessment.design_effect[row]),
            "verdict": imbalance.verdicts[row].value,
        }
        for row, layer in enumerate(assessment.window.layers)
    ]


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.2f}"


def _json_number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
