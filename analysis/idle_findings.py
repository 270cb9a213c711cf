"""Dead experts, in a sentence."""

from __future__ import annotations

import numpy as np

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.finding import Finding, Severity
from moescope.schemas.settings import Settings

_MAX_NAMED = 6


def find_dead(assessment: LoadAssessment, settings: Settings, place: str) -> Finding | None:
    """Say which experts were never chosen although chance would not have left them out; None without any.

    Args:
        assessment: of one scope.
        settings: the part of the median at which an expert is as good as dead.
        place: the scope as findings name it.
    """
    idle, scope = assessment.idle_experts, assessment.window.scope
    places = np.argwhere(idle.is_dead)
    if not len(places):
        return None
    layers = assessment.window.layers
    named = [f"{expert} in layer {layers[row]}" for row, expert in places[:_MAX_NAMED]]
    more = f" and {len(places) - len(named)} more" if len(places) > len(named) else ""
    seconds = words.duration(assessment.window.seconds)
    verb = "was" if len(places) == 1 else "were"
    return Finding(
        Severity.NOTE,
        f"{place}: {words.count(len(places), 'expert')} of {words.integer(scope.experts * len(layers))} "
        f"{verb} never chosen in {seconds}.",
        f"Expert {', '.join(named)}{more}. Chance does not do that: one at "
        f"{words.percent(settings.dead_expert_ratio)} of the layer's median would have been chosen. A rank "
        "that is gone, a bias of the router, or weights that were not loaded would.",
        float(len(places)),
        *(scope.service, scope.ep_group, scope.phase),
        layer=int(layers[places[0][0]]),
        expert=int(places[0][1]) if len(places) == 1 else None,
    )
