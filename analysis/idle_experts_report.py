"""Cold and dead experts, printed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.imbalance import BoolArray

_MAX_NAMED = 4


def print_idle_experts(assessment: LoadAssessment) -> Iterator[str]:
    """How many experts are dead or cold, which, and the copies that they hold; nothing without tokens."""
    idle, window = assessment.idle_experts, assessment.window
    if not window.tokens.any():
        return
    unknown = int((~idle.can_tell).sum())
    dead = words.count(idle.num_dead, "dead expert") if idle.num_dead else "no dead expert"
    cold = f"{words.integer(idle.num_cold)} cold" if idle.num_cold else "no cold one"
    line = f"Idle: {dead}{_named(assessment, idle.is_dead)}, {cold}{_named(assessment, idle.is_cold)}"
    placement = assessment.placement
    wasted = 0 if placement is None else idle.wasted_copies(placement.replicas.sum(axis=0))
    if wasted:
        line += f"; {words.copies(wasted)} beyond the first {'is' if wasted == 1 else 'are'} theirs"
    yield line + "."
    if unknown:
        needed = idle.assignments_to_tell[np.isfinite(idle.assignments_to_tell)]
        least = (
            f": it takes {words.compact(float(np.median(needed)))} assignments an expert"
            if len(needed)
            else ""
        )
        yield (
            f"In {words.count(unknown, 'layer')} of {len(window.layers)} there are too few tokens to call an "
            f"expert dead{least}."
        )


def idle_experts_dict(assessment: LoadAssessment) -> dict[str, Any]:
    """Every dead and cold expert, by layer."""
    idle, placement = assessment.idle_experts, assessment.placement
    return {
        "dead_experts": idle.num_dead,
        "cold_experts": idle.num_cold,
        "wasted_copies": None if placement is None else idle.wasted_copies(placement.replicas.sum(axis=0)),
        "layers": [
            {
                "layer": int(layer),
                "can_tell": bool(idle.can_tell[row]),
                "dead": np.flatnonzero(idle.is_dead[row]).tolist(),
                "cold": np.flatnonzero(idle.is_cold[row]).tolist(),
            }
            for row, layer in enumerate(assessment.window.layers)
        ],
    }


def _named(assessment: LoadAssessment, which: BoolArray) -> str:
    places = np.argwhere(which)
    if not len(places):
        return ""
    layers = assessment.window.layers
    named = [f"{expert} in layer {layers[row]}" for row, expert in places[:_MAX_NAMED]]
    more = len(places) - len(named)
    return f" ({', '.join(named)}{f' and {more} more' if more else ''})"
