"""The key numbers of a deployment: one summary a phase, over its EP groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.findings import worst_layer_row
from moescope.analysis.imbalance import Verdict
from moescope.analysis.token_rate import TokenRate
from moescope.schemas.attributes import Phase
from moescope.schemas.records import FloatArray


@dataclass(frozen=True, slots=True)
class WorstLayer:
    """The layer with the largest net imbalance ratio of a phase."""

    ep_group: str
    layer: int
    ratio: float
    balancedness: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class PhaseSummary:
    """One phase of a deployment, over its EP groups.

    Attributes:
        tokens_per_second: None when the engines' own token counts are not stored.
        recent_tokens_per_second: float64 ``[minutes]``, oldest first.
        worst_layer: None when no layer has a ratio.
        imbalanced_layers, judged_layers: layers with that verdict, and with any.
        harmful_experts, hot_experts: how many of each.
    """

    phase: Phase
    tokens_per_second: float | None
    recent_tokens_per_second: FloatArray
    worst_layer: WorstLayer | None
    imbalanced_layers: int
    judged_layers: int
    harmful_experts: int
    hot_experts: int


def summarise_phase(
    phase: Phase, assessments: Sequence[LoadAssessment], rates: Sequence[TokenRate]
) -> PhaseSummary | None:
    """Sum up one phase; None when nothing of it is stored."""
    own = [one for one in assessments if one.window.scope.phase is phase]
    if not own:
        return None
    of_phase = [rate for rate in rates if rate.phase is phase]
    verdicts = [verdict for one in own if one.imbalance for verdict in one.imbalance.verdicts]
    return PhaseSummary(
        phase,
        sum(rate.mean_per_second for rate in of_phase) if of_phase else None,
        _sum_by_minute(of_phase),
        _worst_layer(own),
        verdicts.count(Verdict.IMBALANCED),
        len(verdicts) - verdicts.count(Verdict.TOO_LITTLE_DATA),
        sum(one.hot_experts.num_harmful for one in own),
        sum(len(one.hot_experts) for one in own),
    )


def find_most_imbalanced(summaries: Sequence[PhaseSummary]) -> tuple[Phase, WorstLayer] | None:
    """The phase whose worst layer is worst of all; None where no layer has a ratio."""
    found = [(one.phase, one.worst_layer) for one in summaries if one.worst_layer is not None]
    return max(found, key=lambda one: one[1].ratio, default=None)


def _sum_by_minute(rates: Sequence[TokenRate]) -> FloatArray:
    if not rates:
        return np.empty(0)
    times, minute = np.unique(np.concatenate([rate.times for rate in rates]), return_inverse=True)
    total = np.zeros(len(times))
    np.add.at(total, minute, np.concatenate([rate.per_second for rate in rates]))
    return total


def _worst_layer(assessments: Sequence[LoadAssessment]) -> WorstLayer | None:
    worst: WorstLayer | None = None
    largest = 0.0
    for one in assessments:
        if one.imbalance is None or not np.isfinite(one.imbalance.ratio).any():
            continue
        row = worst_layer_row(one.imbalance)
        net = float(one.imbalance.net_ratio[row])
        if net > largest:
            largest = net
            worst = WorstLayer(
                one.window.scope.ep_group,
                int(one.window.layers[row]),
                float(one.imbalance.ratio[row]),
                float(one.imbalance.balancedness[row]),
                one.imbalance.verdicts[row],
            )
    return worst
