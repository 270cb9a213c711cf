"""Everything that is decided about one scope's expert load in one window, in one place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moescope.analysis.clustering import estimate_design_effect
from moescope.analysis.expert_load import ExpertLoadWindow, LoadScope, read_window
from moescope.analysis.hot_experts import HotExperts, flag_hot_experts, rank_by_harm
from moescope.analysis.idle_experts import IdleExperts, find_idle_experts
from moescope.analysis.imbalance import Imbalance, ReplicaArray, compute_rank_loads, judge_imbalance
from moescope.analysis.placement import PlacementSnapshot, read_placement
from moescope.analysis.skew import Skew, measure_skew
from moescope.analysis.store import Store
from moescope.schemas.records import FloatArray
from moescope.schemas.settings import Settings


@dataclass(frozen=True, slots=True)
class LoadAssessment:
    """What is known and decided about one window.

    Attributes:
        placement: None when no rank reported one; then ``imbalance`` is None, and no expert is harmful.
        design_effect: float64 ``[layers]``, NaN where unknown.
        unplaced_share: part of the assignments that went to experts of which no reporting rank holds a copy.
    """

    window: ExpertLoadWindow
    placement: PlacementSnapshot | None
    design_effect: FloatArray
    imbalance: Imbalance | None
    hot_experts: HotExperts
    skew: Skew
    idle_experts: IdleExperts
    unplaced_share: float


def read_assessment(
    store: Store, scope: LoadScope, window_seconds: float, settings: Settings, *, end_ms: int | None = None
) -> LoadAssessment:
    """Read a window and its placement, and judge them.

    Raises:
        StoreError: the store cannot answer.
    """
    window = read_window(store, scope, window_seconds, settings, end_ms=end_ms)
    return assess_load(window, read_placement(store, window), settings)


def assess_load(
    window: ExpertLoadWindow, placement: PlacementSnapshot | None, settings: Settings
) -> LoadAssessment:
    """Judge a window: imbalance, hot and idle experts, skew."""
    effect = estimate_design_effect(window.tokens, window.sums)
    # Without a placement the whole group counts as one rank: experts can still be hot, none can be harmful.
    replicas = (
        np.ones((1, *window.tokens.shape), dtype=np.uint16) if placement is None else placement.replicas
    )
    imbalance = judge_imbalance(
        compute_rank_loads(window.tokens, replicas),
        effect,
        acceptable_ratio=settings.imbalance_ratio,
        min_mean_load=settings.min_mean_rank_load,
    )
    hot = flag_hot_experts(
        window.tokens, effect, ratio=settings.hot_expert_ratio, confidence=settings.hot_expert_confidence
    )
    ranked = rank_by_harm(
        *(hot, window.layers, window.tokens, replicas, imbalance),
        harmful_capacity_share=settings.hot_expert_capacity_share if placement is not None else np.inf,
        harmful_relief_share=settings.hot_expert_relief_share,
    )
    return LoadAssessment(
        window,
        placement,
        effect,
        None if placement is None else imbalance,
        ranked,
        measure_skew(window.tokens, effect),
        find_idle_experts(
            *(window.tokens, effect),
            cold_ratio=settings.cold_expert_ratio,
            dead_ratio=settings.dead_expert_ratio,
            confidence=settings.hot_expert_confidence,
        ),
        _unplaced_share(window, replicas.sum(axis=0)),
    )


def _unplaced_share(window: ExpertLoadWindow, copies: ReplicaArray) -> float:
    total = int(window.tokens.sum())
    return float(window.tokens[copies == 0].sum() / total) if total else 0.0
