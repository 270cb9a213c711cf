"""Skew, printed: context below the verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.skew import Skew, typical


def print_skew(assessment: LoadAssessment) -> Iterator[str]:
    """A line of medians over the layers and one of the layer with the largest Gini; none without tokens."""
    skew, num_experts = assessment.skew, assessment.window.scope.experts
    medians = [typical(values) for values in _measures(skew).values()]
    known = [value for value in medians if value is not None]
    if len(known) < len(medians):
        return
    row = most_skewed_row(skew)
    worst = [float(values[row]) for values in _measures(skew).values()]
    yield f"Skew, typical layer: {_line(known, num_experts)}"
    yield f"Most skew, layer {assessment.window.layers[row]}: {_line(worst, num_experts)}"


def skew_dicts(assessment: LoadAssessment) -> list[dict[str, Any]]:
    """Every layer's measures; null where it has too few tokens to say."""
    measures = _measures(assessment.skew)
    return [
        {"layer": int(layer)}
        | {
            name: float(values[row]) if np.isfinite(values[row]) else None
            for name, values in measures.items()
        }
        for row, layer in enumerate(assessment.window.layers)
    ]


def most_skewed_row(skew: Skew) -> int:
    """Position of the layer with the largest Gini coefficient among those with all measures."""
    has_all = np.all([np.isfinite(values) for values in _measures(skew).values()], axis=0)
    return int(np.where(has_all, skew.gini, -1.0).argmax())


def _line(values: list[float], num_experts: int) -> str:
    share, gini, simpson, entropy = values
    # Without bias, the inverse Simpson index may lie a little above the number of experts by chance.
    return (
        f"busiest fifth {words.percent(share)}, Gini {gini:.2f}, "
        f"effective experts {min(simpson, num_experts):.0f} of {num_experts} (entropy {entropy:.0f})"
    )


def _measures(skew: Skew) -> dict[str, np.ndarray]:
    return {
        "busiest_fifth_share": skew.busiest_fifth_share,
        "gini": skew.gini,
        "effective_experts": skew.effective_experts,
        "effective_experts_entropy": skew.effective_experts_entropy,
    }
