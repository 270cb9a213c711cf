"""What became of a scope's balance: its history, whether the load drifted, what moving experts would win."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.clustering import estimate_design_effect, sum_intervals
from moescope.analysis.drift import SIGNIFICANCE, Drift, measure_drift
from moescope.analysis.imbalance import compute_rank_loads, judge_imbalance
from moescope.analysis.imbalance_history import (
    ImbalanceHistory,
    judge_windows,
    read_placements,
    select_layers,
)
from moescope.analysis.load_windows import LoadWindows, read_load_windows
from moescope.analysis.regret import Regret, estimate_regret
from moescope.analysis.store import Store
from moescope.schemas.errors import PlacementError
from moescope.schemas.records import IntArray
from moescope.schemas.settings import Settings
from moescope.schemas.topology import place_replicas

STEPS: Final = 12
"""Windows of a history."""

STEPS_OF_WINDOW: Final = 3
"""Of these, as many make up the window that is judged; as many before them are what it is compared with."""

_MS: Final = 1000
_UNITS: Final = ((1_800, 60), (7_200, 600), (float("inf"), 3_600))
"""Steps up to so many seconds are whole numbers of the intervals in which their table is kept."""


@dataclass(frozen=True, slots=True)
class ImbalanceTrend:
    """What became of one scope.

    Attributes:
        history: of its layers' balance.
        drift: of the judged window from the stretch of the same length before it; None where nothing is
            stored of one of them.
        drift_seconds: length of that stretch.
        regret: None without a placement that holds every expert.
    """

    history: ImbalanceHistory
    drift: Drift | None
    drift_seconds: float
    regret: Regret | None


@dataclass(frozen=True, slots=True)
class LoadChange:
    """What a judged window has that the stretch of the same length before it had not.

    Attributes:
        drift: from one to the other.
        seconds: length of each.
        worsening: by how much max / mean rank load rose with the placement of now, net of noise and averaged
            over the layers with a verdict in both; negative where it fell.
    """

    drift: Drift
    seconds: float
    worsening: float


def choose_step_seconds(window_seconds: float) -> int:
    """A third of the window, in whole minutes, ten minutes or hours as the roll-ups are kept."""
    step = window_seconds / STEPS_OF_WINDOW
    unit = next(unit for limit, unit in _UNITS if step <= limit)
    return max(round(step / unit), 1) * unit


def read_trend(store: Store, assessment: LoadAssessment, settings: Settings) -> ImbalanceTrend:
    """Read and judge what became of a scope.

    Raises:
        StoreError: the store cannot answer.
    """
    window = assessment.window
    windows = _read_steps(store, assessment, STEPS, settings)
    ends_ms = windows.starts_ms + round(windows.seconds * _MS)
    placements = read_placements(store, window, assessment.placement, ends_ms)
    history = judge_windows(windows, window.layers, placements, assessment.design_effect, settings)
    return ImbalanceTrend(
        history,
        compare_halves(
            *(select_layers(windows, window.layers), assessment), significance=settings.drift_significance
        ),
        STEPS_OF_WINDOW * windows.seconds,
        regret_placement(assessment),
    )


def read_change(store: Store, assessment: LoadAssessment, settings: Settings) -> LoadChange | None:
    """Read what changed since the stretch before, less than all that became of a scope.

    None where nothing is stored of one side, or no placement is known.

    Raises:
        StoreError: the store cannot answer.
    """
    windows = _read_steps(store, assessment, 2 * STEPS_OF_WINDOW, settings)
    tokens = select_layers(windows, assessment.window.layers)
    drift = compare_halves(tokens, assessment, significance=settings.drift_significance)
    if drift is None or assessment.placement is None or assessment.imbalance is None:
        return None
    before = judge_imbalance(
        compute_rank_loads(tokens[:STEPS_OF_WINDOW].sum(axis=0), assessment.placement.replicas),
        assessment.design_effect,
        acceptable_ratio=settings.imbalance_ratio,
        min_mean_load=settings.min_mean_rank_load,
    )
    judged = before.has_verdict & assessment.imbalance.has_verdict
    rise = (assessment.imbalance.net_ratio - before.net_ratio)[judged]
    return LoadChange(drift, STEPS_OF_WINDOW * windows.seconds, float(rise.mean()) if len(rise) else 0.0)


def compare_halves(
    tokens_per_step_layer_expert: IntArray,
    assessment: LoadAssessment,
    *,
    significance: float = SIGNIFICANCE,
) -> Drift | None:
    """Compare the newest steps with as many before them; None where one side has no tokens.

    D is the larger one of the two sides: what one of them does within itself is no change between them.

    Args:
        tokens_per_step_layer_expert: int64 ``[steps, layers, experts]``, the oldest first.
        assessment: of the newest steps.
        significance: p-value below which a change is no chance.
    """
    earlier = tokens_per_step_layer_expert[-2 * STEPS_OF_WINDOW : -STEPS_OF_WINDOW]
    later = tokens_per_step_layer_expert[-STEPS_OF_WINDOW:]
    if not (earlier.any() and later.any()):
        return None
    sums = earlier.sum(axis=0)
    effect = np.fmax(assessment.design_effect, estimate_design_effect(sums, sum_intervals(earlier)))
    return measure_drift(sums, later.sum(axis=0), effect, significance=significance)


def regret_placement(assessment: LoadAssessment, *, max_layers: int | None = None) -> Regret | None:
    """What the placement costs on the assessed window; None where the placement is not known in full.

    With ``max_layers`` only so many of the worst may change: sooner said, and a lower bound.
    """
    placement, imbalance = assessment.placement, assessment.imbalance
    if placement is None or imbalance is None or len(placement.missing_ranks):
        return None
    try:
        current = place_replicas(placement.replicas.astype(np.int64))
    except PlacementError:
        return None
    order = np.argsort(-np.nan_to_num(imbalance.net_ratio, nan=0.0), kind="stable")
    return estimate_regret(
        assessment.window.tokens, current, imbalance.floor_of_judged, rows=np.sort(order[:max_layers])
    )


def _read_steps(store: Store, assessment: LoadAssessment, count: int, settings: Settings) -> LoadWindows:
    window = assessment.window
    return read_load_windows(
        *(store, window.scope),
        window_seconds=choose_step_seconds(window.seconds),
        count=count,
        settings=settings,
        end_ms=window.end_ms,
    )
