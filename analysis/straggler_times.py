"""How long the ranks themselves take: at equal load, between the exchanges, and for whole passes.

A rank that computes more assignments takes longer and is not slow. What a load costs is read off the other
ranks: their layers, sorted by load, give a rising curve of medians, and a rank is slow when its layers lie
above it. No model of the kernel is needed, whether it is bound by reading experts or by arithmetic.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from moescope.analysis.medians import median_of_known
from moescope.analysis.straggler_evidence import RankTimes, of_median
from moescope.schemas.attributes import DispatchStage
from moescope.schemas.records import FloatArray

_POINTS_PER_STEP: Final = 24
_MOST_STEPS: Final = 32
_FEWEST_PAIRS: Final = 6
_LEAST_SPREAD: Final = 0.05
"""Ranks whose loads differ by less than this part of a rank's show no slope."""


def time_at_load(expert_seconds: FloatArray, loads: FloatArray, rank: int) -> float:
    """A rank's expert time over what the others need for the same loads, the median of its layers.

    The curve is made without the rank. Beyond the largest load of the others, time is taken to grow in
    proportion to load, the most that it can.

    Args:
        expert_seconds: float64 ``[layers, ranks]``: of one pass; NaN where unknown.
        loads: float64 ``[layers, ranks]``: assignments.
        rank: position of the rank.

    Returns:
        NaN where it is unknown, or fewer than two others are known.
    """
    # Relative to the layer's median rank, so that layers may differ in kind.
    seconds, load = _of_layer(expert_seconds), _of_layer(loads)
    known = (np.nan_to_num(seconds) > 0) & (np.nan_to_num(load) > 0)
    others = known.copy()
    others[:, rank] = False
    if others.any(axis=0).sum() < 2 or not known[:, rank].any():
        return np.nan
    order = np.argsort(load[others], kind="stable")
    mine = known[:, rank]
    expected = _read_curve(load[others][order], seconds[others][order], load[mine, rank])
    return float(np.median(seconds[mine, rank] / expected))


def _of_layer(values: FloatArray) -> FloatArray:
    """Each value over the median rank's in its layer: float64 ``[layers, ranks]``."""
    middle = median_of_known(values, 1)[:, None]
    relative: FloatArray = np.full(values.shape, np.nan)
    np.divide(values, middle, out=relative, where=np.nan_to_num(middle) > 0)
    return relative


def _read_curve(x: FloatArray, y: FloatArray, at: FloatArray) -> FloatArray:
    steps = int(np.clip(len(x) // _POINTS_PER_STEP, 1, _MOST_STEPS))
    middles = np.array([np.median(part) for part in np.array_split(x, steps)])
    times = np.maximum.accumulate([float(np.median(part)) for part in np.array_split(y, steps)])
    read: FloatArray = np.interp(at, middles, times) * np.maximum(at / middles[-1], 1)
    return read


def explained_by_load(waits: FloatArray, loads: FloatArray, rank: int) -> float:
    """Which part of what is waited for a rank its load explains, from waits alone: 0 … 1, NaN if unknown.

    In every layer a rank waits for another as long as that one computes more. What another one costs is
    the slope between the pairs with the least and with the most of it, the rank in question left out. Where
    those are too much alike to show a slope, nothing can be said.

    Args:
        waits: float64 ``[ranks, ranks]``: row waited for column; NaN where unknown.
        loads: float64 ``[layers, ranks]``: assignments.
        rank: position of the rank in question.
    """
    more = np.maximum(loads[:, None, :] - loads[:, :, None], 0).sum(axis=0)
    others = np.isfinite(waits) & ~np.eye(len(waits), dtype=bool)
    mine = others[:, rank].copy()
    others[rank], others[:, rank] = False, False
    if others.sum() < _FEWEST_PAIRS or not mine.any():
        return np.nan
    low, high = np.quantile(more[others], (1 / 3, 2 / 3))
    least, most = others & (more <= low), others & (more >= high)
    spread = float(np.median(more[most]) - np.median(more[least]))
    if spread < _LEAST_SPREAD * float(np.median(loads.sum(axis=0))):
        return np.nan
    slope = max(float(np.median(waits[most]) - np.median(waits[least])) / spread, 0.0)
    observed = float(np.maximum(waits[mine, rank] - np.median(waits[others]), 0).sum())
    expected = slope * float(np.maximum(more[mine, rank] - np.median(more[others]), 0).sum())
    return min(expected / observed, 1.0) if observed > 0 else np.nan


def share_in_loaded_layers(expert_seconds: FloatArray, loads: FloatArray, loaded_from: float) -> FloatArray:
    """Part of each rank's extra expert time that it spends in layers where it has much to do.

    Args:
        expert_seconds: float64 ``[layers, ranks]``; NaN where unknown.
        loads: float64 ``[layers, ranks]``: assignments.
        loaded_from: multiple of the layer's median rank from which that is much.

    Returns:
        float64 ``[ranks]``; NaN where a rank takes no longer than the median one in any layer.
    """
    extra = np.nan_to_num(np.maximum(expert_seconds - median_of_known(expert_seconds, 1)[:, None], 0))
    loaded = loads >= loaded_from * np.median(loads, axis=1, keepdims=True)
    total = extra.sum(axis=0)
    share: FloatArray = np.full(len(total), np.nan)
    np.divide((extra * loaded).sum(axis=0), total, out=share, where=total > 0)
    return share


def exchange_seconds(times: RankTimes, stage: DispatchStage, num_layers: int) -> FloatArray:
    """Time in one stage of all layers' exchanges in a window, at the median rank's number of passes.

    The late rank's is the shortest: when it comes, the others' tokens are there.

    Returns:
        float64 ``[windows, ranks]``; NaN where unknown.
    """
    passes = median_of_known(times.passes, 1)[:, None]
    seconds: FloatArray = times.call_seconds[stage] * passes * num_layers
    return seconds


def pass_time_at_tokens(times: RankTimes) -> FloatArray:
    """Each rank's mean pass over the median rank's, less what its number of tokens explains at most.

    Returns:
        float64 ``[windows, ranks]``; NaN where unknown.
    """
    rows = [
        of_median(seconds) / np.fmax(of_median(tokens), 1.0)
        for seconds, tokens in zip(times.pass_seconds, times.pass_tokens, strict=True)
    ]
    return np.stack(rows)
