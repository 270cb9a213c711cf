"""A replication plan as JSON: a placement document with everything that is known of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from moescope.analysis.backtest import Backtest
from moescope.analysis.imbalance import RATIO_FORMULA
from moescope.analysis.plan_result import PlanResult
from moescope.analysis.replication_coverage import NodeCoverage
from moescope.analysis.span_sections import json_number
from moescope.schemas.placement_document import make_document
from moescope.schemas.records import FloatArray


def describe_plan(plan: PlanResult) -> dict[str, Any]:
    """The shape of ``moescope plan --format json``, which ``--current`` and vLLM's plug-in read back."""
    floor = plan.noise_floor
    return {
        "advice": {"verdict": plan.advice.verdict.value, "sentence": plan.advice.sentence},
        "source": plan.source,
        "planned_for": plan.planned_for,
        "windows": plan.windows,
        "formula": RATIO_FORMULA,
        **make_document(plan.placement, plan.layers.tolist()),
        "slots_per_rank": plan.placement.slots_per_rank,
        "redundant_experts": plan.redundant_experts,
        "ratio_before": plan.ratio_before.tolist(),
        "ratio_after": plan.ratio_after.tolist(),
        "ratio_bound": plan.bound.tolist(),
        "noise_floor": None if floor is None else [json_number(value) for value in floor.tolist()],
        "is_before_known": plan.is_before_known,
        "moved": _describe_moves(plan),
        "memory": _describe_memory(plan),
        "coverage": {
            "nodes": plan.nodes,
            "before": _describe_coverage(plan.coverage_before),
            "after": _describe_coverage(plan.coverage),
        },
        "backtest": None if plan.backtest is None else _describe_backtest(plan.backtest),
        "small_change": _describe_small_change(plan),
        "uneven_split": _describe_uneven_split(plan),
        "notes": list(plan.notes),
    }


def _describe_moves(plan: PlanResult) -> dict[str, Any]:
    sizes = plan.moved_bytes_per_rank
    return {
        "copies": int(plan.moved.sum()),
        "share": plan.moved_share,
        "copies_per_rank": plan.moved.sum(axis=0).tolist(),
        "copies_per_layer": plan.moved.sum(axis=1).tolist(),
        "bytes": None if sizes is None else float(sizes.sum()),
        "bytes_per_rank": None if sizes is None else sizes.tolist(),
    }


def _describe_memory(plan: PlanResult) -> dict[str, Any] | None:
    before, after = plan.memory_per_rank(plan.before), plan.memory_per_rank(plan.placement)
    if before is None or after is None:
        return None
    return {"bytes_per_rank_before": before.tolist(), "bytes_per_rank_after": after.tolist()}


def _describe_small_change(plan: PlanResult) -> dict[str, Any] | None:
    change = plan.small_change
    if change is None:
        return None
    return {"copies": change.moved, "share": change.moved_share, "ratio_after": change.ratio.tolist()}


def _describe_uneven_split(plan: PlanResult) -> dict[str, Any] | None:
    split = plan.uneven
    if split is None:
        return None
    return {
        "label": split.label,
        "ratio_after": split.ratio_uneven.tolist(),
        "share_per_slot": split.share_per_slot.tolist(),
    }


def _describe_coverage(coverage: NodeCoverage) -> dict[str, Any]:
    return {
        "hot_experts": coverage.hot_experts,
        "hot_on_two_ranks": coverage.hot_on_two_ranks,
        "hot_on_two_nodes": coverage.hot_on_two_nodes,
        "traffic_on_two_ranks": coverage.traffic_on_two_ranks,
        "traffic_on_two_nodes": coverage.traffic_on_two_nodes,
    }


def _describe_backtest(tested: Backtest) -> dict[str, Any]:
    def mean(values: FloatArray) -> float | None:
        return float(np.nanmean(values)) if np.isfinite(values).any() else None

    return {
        "verdict": tested.verdict.value,
        "windows": tested.windows,
        "pairs": len(tested.ratio_before),
        "ratio_before": mean(tested.ratio_before),
        "ratio_after": mean(tested.ratio_after),
        "gain": json_number(tested.gain_mean),
        "gain_low": json_number(tested.gain_low),
        "gain_high": json_number(tested.gain_high),
        "gain_beyond_noise": json_number(tested.net_gain),
        "noise_floor": json_number(tested.noise_floor),
    }
