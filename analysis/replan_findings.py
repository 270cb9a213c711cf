"""When experts should be moved, in a sentence: the load drifted, and the placement no longer fits it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.drift import Drift
from moescope.analysis.finding import Finding, Severity, Subject
from moescope.analysis.imbalance_trend import LoadChange, read_change, regret_placement
from moescope.analysis.imbalance_trend_report import PLAN_MOVES, describe_moves
from moescope.analysis.regret import Regret
from moescope.analysis.span import plan_options
from moescope.analysis.store import Store
from moescope.schemas.settings import Settings

_QUICK_SLOTS: Final = 200_000
"""Layers times slots of a rank squared that may change in a quick look: a page is waiting for it."""

_NOTABLE_SHARE: Final = 0.1
"""Worth a note: so much of the load went to other experts, though no move of experts would win by it."""


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
        change = read_change(store, assessment, settings)
        if change is None or not change.drift.is_significant.any():
            continue
        regret = None
        if most_regret(assessment) >= settings.replan_min_gain:
            regret = regret_placement(assessment, max_layers=_quick_layers(assessment))
        if regret is not None and regret.mean >= settings.replan_min_gain:
            found.append(describe_replan(assessment, change, regret, settings, names_group=names_group))
        elif share_moved(change.drift) >= _NOTABLE_SHARE:
            found.append(_describe_drift(assessment, change, names_group=names_group))
    return tuple(found)


def share_moved(drift: Drift) -> float:
    """Part of the assignments that went to other experts, net of noise, averaged over the layers."""
    return float(np.nan_to_num(drift.net_variation, nan=0.0).mean())


def most_regret(assessment: LoadAssessment) -> float:
    """What perfect balance would win, net of noise and averaged over layers: more than any move can."""
    imbalance = assessment.imbalance
    if imbalance is None or not len(imbalance.ratio):
        return 0.0
    return float(np.where(imbalance.has_verdict, imbalance.net_ratio - 1, 0.0).mean())


def describe_replan(
    assessment: LoadAssessment,
    change: LoadChange,
    regret: Regret,
    settings: Settings,
    *,
    names_group: bool = False,
) -> Finding:
    """Put drift and regret of one scope into words that say what to do.

    A warning where the balance became worse by as much as moves must win; a note where it was no better
    before.
    """
    scope, drift = assessment.window.scope, change.drift
    is_worse = change.worsening >= settings.replan_min_gain
    group = f", EP group {scope.ep_group}" if names_group else ""
    fits = "no longer fits the load" if is_worse else "could fit the load better"
    return Finding(
        Severity.WARNING if is_worse else Severity.NOTE,
        f"{scope.phase.value.capitalize()}{group}: the placement {fits}; moving {describe_moves(regret)} "
        f"would lower max / mean rank load by {regret.mean:.2f} a layer.",
        f"{_moved(assessment, drift, words.duration(change.seconds))} {_gain(assessment, change, regret)} "
        f"Re-plan: `moescope plan {plan_options(scope.service, scope.ep_group)} {PLAN_MOVES}` says what that "
        "is worth on windows it was not planned for.",
        regret.mean,
        *(scope.service, scope.ep_group, scope.phase),
        layer=int(assessment.window.layers[regret.regret.argmax()]),
        subject=Subject.REPLICATION,
    )


def _describe_drift(assessment: LoadAssessment, change: LoadChange, *, names_group: bool) -> Finding:
    scope = assessment.window.scope
    group = f", EP group {scope.ep_group}" if names_group else ""
    became = "rose" if change.worsening >= 0 else "fell"
    return Finding(
        Severity.NOTE,
        f"{scope.phase.value.capitalize()}{group}: {words.percent(share_moved(change.drift))} of the "
        f"assignments went to other experts than in the {words.duration(change.seconds)} before.",
        f"{_moved(assessment, change.drift, words.duration(change.seconds))} Requests are about something "
        f"else; the placement still fits: max / mean {became} by {abs(change.worsening):.2f} a layer.",
        share_moved(change.drift),
        *(scope.service, scope.ep_group, scope.phase),
        layer=int(assessment.window.layers[np.nan_to_num(change.drift.net_variation).argmax()]),
        subject=Subject.DRIFT,
    )


def _moved(assessment: LoadAssessment, drift: Drift, before: str) -> str:
    layers = assessment.window.layers
    rows = np.flatnonzero(drift.is_significant)
    most = int(rows[drift.net_variation[rows].argmax()])
    return (
        f"Tokens went to other experts than in the {before} before, in {len(rows)} of "
        f"{words.count(len(layers), 'layer')}: {words.percent(drift.net_variation[most])} of them in layer "
        f"{layers[most]}, noise of {words.percent(drift.floor[most])} taken out."
    )


def _gain(assessment: LoadAssessment, change: LoadChange, regret: Regret) -> str:
    worst = int(regret.regret.argmax())
    became = "rose" if change.worsening >= 0 else "fell"
    return (
        f"Max / mean {became} by {abs(change.worsening):.2f} a layer; the moves would take layer "
        f"{assessment.window.layers[worst]} from {regret.ratio_now[worst]:.2f} to "
        f"{regret.ratio_after_moves[worst]:.2f}."
    )


def _quick_layers(assessment: LoadAssessment) -> int:
    """So many of the worst layers that the search among the slots of their ranks is quick."""
    placement = assessment.placement
    slots = 1 if placement is None else int(placement.replicas.sum(axis=2).max(initial=1))
    return max(_QUICK_SLOTS // slots**2, 1)
