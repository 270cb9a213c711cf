"""Activated experts, printed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.imbalance_answer import ImbalanceAnswer
from moescope.analysis.span_sections import json_number
from moescope.schemas.attributes import Phase

_EVEN: Final = 1.005
"""Max / mean that is printed as 1.00."""


def print_activated_experts(answer: ImbalanceAnswer, width: int) -> Iterator[str]:
    """What a decode pass reads on each rank, filled to that width."""
    sentence = describe_activated_experts(answer)
    if sentence:
        yield textwrap.fill(sentence, width)


def describe_activated_experts(answer: ImbalanceAnswer) -> str:
    """What a decode pass reads on each rank; empty in prefill, which is bound by tokens."""
    activated, worse = answer.activated, answer.reads_are_worse
    if answer.assessment.window.scope.phase is not Phase.DECODE:
        return ""
    if activated is None or worse is None or answer.assessment.imbalance is None:
        if answer.assessment.placement is None:
            return ""
        return "Activated experts: unknown, no engine reports its forward passes (moe.step.tokens)."
    if not np.isfinite(activated.ratio).any():
        return ""
    layers, ranks = answer.assessment.window.layers, answer.assessment.placement
    judged = answer.assessment.imbalance.has_verdict
    row = int(np.where(judged, activated.net_ratio, -1.0).argmax())
    is_even = bool((activated.net_ratio[judged] < _EVEN).all())
    rank = "" if ranks is None else f", rank {ranks.ranks[activated.busiest_rank[row]]}"
    return (
        f"Activated experts, estimated from counts of {words.integer(activated.passes)} passes: a rank reads "
        f"{activated.independent.mean():.1f} of its {activated.held.mean():.1f} copies a pass and layer, "
        f"each for {np.nanmedian(activated.assignments_per_read):.1f} assignments. "
        + (
            "All ranks read the same, net of noise. "
            if is_even
            else f"Max / mean over ranks: {activated.ratio[row]:.2f} at most (layer {layers[row]}{rank}; "
            f"{activated.net_ratio[row]:.2f} net of noise). "
        )
        + f"{_compare(int(worse.sum()), int(judged.sum()))} "
        f"Tokens of a pass that choose alike read fewer: {activated.clustered.mean():.1f} in pairs."
    )


def activated_experts_dict(answer: ImbalanceAnswer) -> dict[str, Any] | None:
    """Every layer's estimate; null where passes or placement are not known."""
    activated, worse = answer.activated, answer.reads_are_worse
    placement = answer.assessment.placement
    if activated is None or worse is None or placement is None:
        return None
    return {
        "passes": activated.passes,
        "layers": [
            {
                "layer": int(layer),
                "assignments_per_pass": float(activated.assignments_per_pass[row]),
                "assignments_per_read": json_number(activated.assignments_per_read[row]),
                "experts_per_rank": float(activated.independent[row].mean()),
                "experts_per_rank_clustered": float(activated.clustered[row].mean()),
                "copies_per_rank": float(activated.held[row].mean()),
                "ratio": json_number(activated.ratio[row]),
                "noise_floor": json_number(activated.noise_floor[row]),
                "net_ratio": json_number(activated.net_ratio[row]),
                "busiest_rank": int(placement.ranks[activated.busiest_rank[row]]),
                "worse_than_tokens": bool(worse[row]),
            }
            for row, layer in enumerate(answer.assessment.window.layers)
        ],
    }


def _compare(worse: int, judged: int) -> str:
    if not judged:
        return "Too few tokens to say whether tokens or reads are spread worse."
    if not worse:
        return "Tokens are spread worse than that in every layer."
    if worse == judged:
        return "Tokens are spread better than that in every layer."
    return f"Tokens are spread worse in {judged - worse} of {words.count(judged, 'layer')}, reads in {worse}."
