"""When experts should be moved, in a sentence: the load drifted, and the placement no longer fits it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.drift import Drift
from moescope.analysis.finding import Finding, Severity
from moescope.analysis.imbalance_trend import read_drift, regret_placement
from moescope.analysis.imbalance_trend_report import PLAN_COMMAND, describe_moves
from moescope.analysis.regret import Regret
from moescope.analysis.store import Store
from moescope.schemas.settings import Settings

_MAX_LAYERS: Final = 16
"""Layers that may change in a quick look: a page is waiting for it."""


def read_replan_findings(
    store: Store, assessments: Sequence[LoadAssessment], settings: Settings
) -> tuple[Finding, ...]:
    """Say where the load drifted and moving a few experts would win more than noise.

    Raises:
        StoreError: the store cannot answer.
    """
    names_group = len({one.window.scope.ep_group for one in assessments}) > 1
    found = []
    for assessment in assessments:
        if most_regret(assessment) < settings.replan_min_gain:
            continue
        drift, seconds = read_drift(store, assessment, settings)
        if drift is None or not drift.is_significant.any():
            continue
        regret = regret_placement(assessment, max_layers=_MAX_LAYERS)
        if regret is not None and regret.mean >= settings.replan_min_gain:
            found.append(describe_replan(assessment, drift, seconds, regret, names_group=names_group))
    return tuple(found)


def most_regret(assessment: LoadAssessment) -> float:
    """What perfect balance would win, net of noise and averaged over layers: more than any move can."""
    imbalance = assessment.imbalance
    if imbalance is None or not len(imbalance.ratio):
        return 0.0
    return float(np.where(imbalance.has_verdict, imbalance.net_ratio - 1, 0.0).mean())


def describe_replan(
    assessment: LoadAssessment,
    drift: Drift,
    seconds: float,
    regret: Regret,
    *,
    names_group: bool = False,
) -> Finding:
    """Put drift and regret of one scope into words that say what to do."""
    scope, layers = assessment.window.scope, assessment.window.layers
    rows = np.flatnonzero(drift.is_significant)
    moved_most = int(rows[drift.net_variation[rows].argmax()])
    worst = int(regret.regret.argmax())
    group = f", EP group {scope.ep_group}" if names_group else ""
    of_layers = words.count(len(layers), "layer")
    return Finding(
        Severity.WARNING,
        f"{scope.phase.value.capitalize()}{group}: tokens went to other experts in {len(rows)} of "
        f"{of_layers} and the placement no longer fits; moving {describe_moves(regret)} would even it out.",
        f"In layer {layers[moved_most]}, {words.percent(drift.net_variation[moved_most])} of the assignments "
        f"went to other experts than in the {words.duration(seconds)} before, noise of "
        f"{words.percent(drift.floor[moved_most])} taken out. The moves would lower max / mean rank load by "
        f"{regret.mean:.2f} a layer, net of noise; in layer {layers[worst]} from "
        f"{regret.ratio_now[worst]:.2f} to {regret.ratio_after_moves[worst]:.2f}. "
        f"Re-plan: `{PLAN_COMMAND}` says what that is worth on windows it was not planned for.",
        regret.mean,
        *(scope.service, scope.ep_group, scope.phase),
        layer=int(layers[worst]),
    )
