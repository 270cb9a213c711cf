"""What would a plan have been worth? Planned on one window, scored on the next, over the windows stored.

The ratio that a plan reaches on the window that it was made from says nothing: it is perfect, and the load
moves on. Here no plan is ever scored on a window that it has seen.

Windows are the unit: layers of one window see the same traffic, so their gains are averaged first, and the
spread is that of windows. The range given is for one next window, not for the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from moescope.analysis.frozen import lock
from moescope.analysis.gain_spread import Spread, spread_of
from moescope.analysis.imbalance import estimate_noise_floor, subtract_noise_floor
from moescope.analysis.placement_score import balance_ratio
from moescope.analysis.replan_advice import hottest_expert_bound
from moescope.schemas.errors import ShapeError
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import Placement

MIN_PAIRS: Final = 3
"""Pairs of windows below which nothing is said."""
MIN_MEAN_LOAD: Final = 30.0
"""Effective assignments a rank and window (mean / D) below which ratios are noise."""
SMALLEST_GAIN: Final = 0.005
"""Fall of max / mean, averaged over layers, below which nothing is worth a move."""


class BacktestVerdict(StrEnum):
    """What past windows say about a plan."""

    WORTH_IT = "worth it"
    LEAVE_IT = "leave it"
    ONLY_REPLICAS = "only replicas can help"
    TOO_LITTLE_DATA = "too little data"


@dataclass(frozen=True, slots=True)
class Backtest:
    """How the plans made on past windows did on the windows after them.

    Attributes:
        windows: windows with tokens.
        ratio_before: float64 ``[pairs, layers]``, max / mean of the placement that stays, in the window after
            the plan; NaN for a layer without tokens in it.
        ratio_after: float64 ``[pairs, layers]``, of the plan in the same window.
        gain_mean: fall of max / mean, averaged over layers, then over pairs.
        gain_low, gain_high: 90 % range of the gain in one next window: it holds at least nine in ten of them,
            with 90 % confidence. NaN with fewer than two pairs.
        noise_floor: max / mean that uniform routing would show in these windows, on average.
        net_gain: what is left of ``gain_mean`` when noise is taken out of both ratios; never more than it.
        verdict: what to do.
    """

    windows: int
    ratio_before: FloatArray
    ratio_after: FloatArray
    gain_mean: float
    gain_low: float
    gain_high: float
    noise_floor: float
    net_gain: float
    verdict: BacktestVerdict


def last_window(tokens_per_window: IntArray) -> FloatArray:
    """Plan for the last window as it was: float64 ``[layers, experts]``."""
    last: FloatArray = tokens_per_window[-1].astype(np.float64)
    return last


def sum_of_windows(tokens_per_window: IntArray) -> FloatArray:
    """Plan for all windows together: float64 ``[layers, experts]``."""
    total: FloatArray = tokens_per_window.sum(axis=0, dtype=np.float64)
    return total


def backtest(
    tokens_per_window: IntArray,
    before: Placement,
    make_plan: Callable[[FloatArray], Placement],
    *,
    design_effect: FloatArray,
    plan_for: Callable[[IntArray], FloatArray] = last_window,
    min_gain: float = SMALLEST_GAIN,
    progress: Callable[[int, int], None] | None = None,
) -> Backtest:
    """Plan on each window and score the plan on the one after it.

    Args:
        tokens_per_window: int64 ``[windows, layers, experts]``, equally long windows, the oldest first.
        before: the placement that stays if nothing is done.
        make_plan: gets tokens float64 ``[layers, experts]``, gives a placement. It must not know later
            windows.
        design_effect: float64 ``[layers]``, D within a window; NaN counts as 1.
        plan_for: makes of the windows so far, ``[windows, layers, experts]``, the tokens that are planned
            for: the last window, :func:`sum_of_windows`, or a forecast. The same as for the plan in question.
        min_gain: net gain below which a plan is not worth it.
        progress: called with pairs that are done and pairs in all.

    Raises:
        ShapeError: tokens that do not fit the placement.
    """
    _check_axes(tokens_per_window, before)
    has_tokens = tokens_per_window.sum(axis=(1, 2)) > 0
    pairs = np.flatnonzero(has_tokens[:-1] & has_tokens[1:])
    ratios = np.full((2, len(pairs), tokens_per_window.shape[1]), np.nan)
    bound = np.full(ratios.shape[1:], np.nan)
    for done, window in enumerate(pairs):
        seen, scored = tokens_per_window[: window + 1], tokens_per_window[window + 1]
        plan = make_plan(plan_for(seen))
        known = scored.any(axis=1)
        for row, placement in enumerate((before, plan)):
            ratios[row, done] = np.where(known, balance_ratio(scored, placement), np.nan)
        bound[done] = np.where(known, hottest_expert_bound(scored, plan), np.nan)
        if progress is not None:
            progress(done + 1, len(pairs))
    effect = np.nan_to_num(design_effect, nan=1.0)
    mean_load = tokens_per_window[pairs + 1].sum(axis=2) / before.ep_size
    spread = spread_of(_mean_over_layers(ratios[0] - ratios[1]))
    floor = estimate_noise_floor(np.where(mean_load > 0, mean_load, np.nan), before.ep_size, effect)
    net = [_mean(subtract_noise_floor(ratio, floor)) for ratio in ratios]
    net_gain = min(spread.mean, net[0] - net[1])
    is_enough = len(pairs) >= MIN_PAIRS and np.median(mean_load / effect) >= MIN_MEAN_LOAD
    only_replicas = 2 * (_mean(bound) - 1) > _mean(ratios[1]) - 1 and _mean(bound) > _mean(floor)
    return Backtest(
        int(has_tokens.sum()),
        *(lock(ratios[0].copy()), lock(ratios[1].copy())),
        *(spread.mean, spread.low, spread.high, _mean(floor), net_gain),
        _judge(spread, net_gain, min_gain, is_enough=is_enough, only_replicas=only_replicas),
    )


def _judge(
    spread: Spread, net_gain: float, min_gain: float, *, is_enough: bool, only_replicas: bool
) -> BacktestVerdict:
    if not is_enough:
        return BacktestVerdict.TOO_LITTLE_DATA
    if spread.surely_above > 0 and net_gain > min_gain:
        return BacktestVerdict.WORTH_IT
    return BacktestVerdict.ONLY_REPLICAS if only_replicas else BacktestVerdict.LEAVE_IT


def _mean(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else np.nan


def _mean_over_layers(values: FloatArray) -> FloatArray:
    """Average ``[pairs, layers]`` over the layers that have a value: float64 ``[pairs]``."""
    means: FloatArray = np.array([_mean(row) for row in values], dtype=np.float64)
    return means


def _check_axes(tokens_per_window: IntArray, before: Placement) -> None:
    expected = (len(before.physical_to_logical_map), before.num_experts)
    if tokens_per_window.ndim != 3 or tokens_per_window.shape[1:] != expected:
        raise ShapeError(
            f"tokens have the shape {tokens_per_window.shape}; a back-test of a placement of {expected[0]} "
            f"layers and {expected[1]} experts needs [windows, {expected[0]}, {expected[1]}]"
        )
