"""Imbalance over time, drift and regret, printed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.drift import Drift
from moescope.analysis.expert_load import ExpertLoadWindow, from_ms
from moescope.analysis.imbalance_history import ImbalanceHistory
from moescope.analysis.imbalance_trend import ImbalanceTrend
from moescope.analysis.regret import MOVED_SHARE, Regret
from moescope.analysis.span import plan_options
from moescope.analysis.span_sections import json_number
from moescope.schemas.records import IntArray

PLAN_MOVES = f"--max-moved {100 * MOVED_SHARE:g}%"


def print_history(history: ImbalanceHistory, layers: IntArray) -> Iterator[str]:
    """Which layers are imbalanced now and have been for a while; nothing where none is."""
    since = history.since_ms
    judged = int(history.num_judged.max(initial=0))
    rows = np.flatnonzero(since >= 0)
    if judged < 2 or not len(rows):
        return
    lasting = rows[history.is_lasting[rows]]
    steps = f"{words.count(judged, 'window')} of {words.duration(history.seconds)}"
    if len(lasting):
        yield f"Lasting: {_layers(layers[lasting])}, imbalanced in each of the last {steps}."
    others = rows[~history.is_lasting[rows]]
    for moment in np.unique(since[others])[::-1]:
        now = others[since[others] == moment]
        yield f"Since {from_ms(int(moment)):%H:%M} UTC: {_layers(layers[now])}, of the last {steps}."


def print_drift(trend: ImbalanceTrend, assessment: LoadAssessment) -> Iterator[str]:
    """Whether experts took over each other's work."""
    drift, layers = trend.drift, assessment.window.layers
    before = f"the {words.duration(trend.drift_seconds)} before"
    if drift is None:
        yield f"Drift: nothing is stored of {before}."
        return
    rows = np.flatnonzero(drift.is_significant)
    if not len(rows):
        yield f"Drift: no layer uses its experts differently than in {before}; what differs is noise."
        return
    worst = int(rows[drift.net_variation[rows].argmax()])
    yield (
        f"Drift: {_of(len(rows), len(layers))} their experts differently than in {before}; most of all layer "
        f"{layers[worst]}, where "
        f"{words.percent(drift.net_variation[worst])} of the assignments went to other experts "
        f"(noise of {words.percent(drift.floor[worst])} taken out)."
    )


def print_regret(regret: Regret | None, window: ExpertLoadWindow, min_gain: float) -> Iterator[str]:
    """What a few moves would win, and what to do about it."""
    if regret is None:
        return
    layers, plan = window.layers, f"moescope plan {plan_options(window.scope.service, window.scope.ep_group)}"
    stuck = np.flatnonzero(regret.only_replicas_help)
    if regret.mean >= min_gain:
        worst = int(regret.regret.argmax())
        yield (
            f"Placement: moving {describe_moves(regret)} would have lowered max / mean by {regret.mean:.2f} "
            f"a layer in this window, net of noise; most in layer {layers[worst]}, "
            f"{regret.ratio_now[worst]:.2f} to {regret.ratio_after_moves[worst]:.2f}. "
            f"Re-plan, with a back-test: `{plan} {PLAN_MOVES}`."
        )
    else:
        yield (
            f"Placement: moving up to {words.percent(MOVED_SHARE)} of the copies would have won "
            f"{regret.mean:.2f} of max / mean a layer in this window, net of noise: leave it."
        )
    if len(stuck):
        yield (
            f"Only more copies of their hottest expert can help {_layers(layers[stuck])}: "
            f"`{plan}` with more --redundant-experts."
        )


def history_dict(trend: ImbalanceTrend | None) -> dict[str, Any] | None:
    """The windows of the history; what each layer did in them stands with the layer."""
    if trend is None:
        return None
    history = trend.history
    return {
        "window_seconds": history.seconds,
        "starts": [from_ms(int(start)).isoformat() for start in history.starts_ms],
        "drift_compared_seconds": trend.drift_seconds,
        "drifted_layers": None if trend.drift is None else int(trend.drift.is_significant.sum()),
    }


def layer_trend_dict(trend: ImbalanceTrend | None, row: int) -> dict[str, Any]:
    """What became of one layer; null where it is not known."""
    if trend is None:
        return {"net_ratio_over_time": None, "imbalanced_since": None, "drift": None}
    history = trend.history
    since = int(history.since_ms[row])
    return {
        "net_ratio_over_time": [json_number(value) for value in history.net_ratio[:, row]],
        "imbalanced_since": None if since < 0 else from_ms(since).isoformat(),
        "drift": None if trend.drift is None else _drift_dict(trend.drift, row),
    }


def regret_dict(trend: ImbalanceTrend | None, layers: IntArray) -> dict[str, Any] | None:
    """What a few moves would win, all layers and each; null where the placement is not known in full."""
    regret = None if trend is None else trend.regret
    if regret is None:
        return None
    return {
        "moved": regret.moved,
        "moved_share": regret.moved_share,
        "mean_regret": regret.mean,
        "layers": [
            {
                "layer": int(layer),
                "ratio_now": float(regret.ratio_now[row]),
                "ratio_after_moves": float(regret.ratio_after_moves[row]),
                "regret": float(regret.regret[row]),
                "moved": int(regret.moved_per_layer[row]),
                "only_replicas_help": bool(regret.only_replicas_help[row]),
            }
            for row, layer in enumerate(layers)
        ],
    }


def _drift_dict(drift: Drift, row: int) -> dict[str, Any]:
    return {
        "statistic": json_number(drift.statistic[row]),
        "degrees": int(drift.degrees[row]),
        "p_value": json_number(drift.p_value[row]),
        "total_variation": json_number(drift.total_variation[row]),
        "noise_floor": json_number(drift.floor[row]),
        "net_variation": json_number(drift.net_variation[row]),
        "significant": bool(drift.is_significant[row]),
    }


def describe_moves(regret: Regret) -> str:
    """``34 expert copies (2 %)``."""
    noun = "expert copy" if regret.moved == 1 else "expert copies"
    return f"{words.integer(regret.moved)} {noun} ({words.percent(regret.moved_share)})"


def _of(number: int, whole: int) -> str:
    if number == whole:
        return f"all {words.count(whole, 'layer')} use" if whole > 1 else "the layer uses"
    return f"{number} of {words.count(whole, 'layer')} {'uses' if number == 1 else 'use'}"


def _layers(layers: IntArray) -> str:
    return words.listed("layer", layers.tolist()).lower()
