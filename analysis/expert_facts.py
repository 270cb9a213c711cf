"""What is known of one expert in one window, hot or not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.hot_experts import times_median
from moescope.schemas.records import IntArray

_SECONDS_PER_MINUTE = 60


@dataclass(frozen=True, slots=True)
class ExpertFacts:
    """One expert in one window.

    Attributes:
        per_minute: assignments a minute.
        times_median: multiple of the layer's median expert.
        copies: in the group; 0 when no placement is known.
        ranks: int64, EP ranks that hold one.
        capacity_share: what one copy takes of a rank's even share of the layer; None without a placement.
        relief: by how much the layer's max / mean would fall without it; 0 for experts that are not hot.
    """

    layer: int
    expert: int
    per_minute: float
    times_median: float
    copies: int
    ranks: IntArray
    capacity_share: float | None
    relief: float
    is_hot: bool
    is_harmful: bool


def describe_expert(assessment: LoadAssessment, layer: int, expert: int) -> ExpertFacts | None:
    """Look one expert up; None when the model has no such layer or expert."""
    window, placement = assessment.window, assessment.placement
    row = window.row_of_layer(layer)
    if row is None or not 0 <= expert < window.scope.experts:
        return None
    tokens = int(window.tokens[row, expert])
    copies = int(placement.replicas[:, row, expert].sum()) if placement else 0
    hot = assessment.hot_experts
    at = np.flatnonzero((hot.layer_row == row) & (hot.expert == expert))
    return ExpertFacts(
        *(layer, expert, tokens * _SECONDS_PER_MINUTE / max(window.seconds, 1)),
        float(times_median(window.tokens[row : row + 1])[0, expert]),
        copies,
        placement.ranks_of(row, expert) if placement else np.empty(0, dtype=np.int64),
        _capacity_share(assessment, row, tokens, copies),
        float(hot.relief[at].sum()),
        bool(len(at)),
        bool(hot.is_harmful[at].any()),
    )


def _capacity_share(assessment: LoadAssessment, row: int, tokens: int, copies: int) -> float | None:
    if assessment.imbalance is None or not copies:
        return None
    mean = float(assessment.imbalance.rank_loads[row].mean())
    return tokens / copies / mean if mean else None
