"""What will the next window look like? Between the last window and the long run, layer by layer.

A single window is noisy, and a plan made from it chases the noise; a long mean is blind to change. So, on the
logarithms of the experts' shares,

    forecast = exp(m + a · (y − m))

with y the last window's log share after Gamma-Poisson shrinkage, m its slow moving average, and a the
*persistence*: the part of a deviation from m that was still there one window later, by regression over the
windows seen (planner's notes, §5).

After an abrupt change the past says nothing: the layer starts afresh, from the last window alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.stats import chi2

from moescope.analysis.drift import SIGNIFICANCE, measure_drift
from moescope.analysis.frozen import lock
from moescope.analysis.imbalance import BoolArray
from moescope.schemas.errors import ShapeError
from moescope.schemas.records import FloatArray, IntArray

SLOW: Final = 0.15
"""Weight of a new window in the moving average, after a plain mean of the first few."""
REMEMBERED: Final = 0.9
"""Part of the weight in the regression that a pair of windows keeps with each newer window."""
PERSISTENCE_UNKNOWN: Final = 0.7
"""Persistence before anything is known; weighs as much as one pair of windows."""
SMALLEST_SPREAD: Final = 0.02
"""Least variance of the true shares, in squares of their mean: no router is taken for perfectly even."""
ABRUPT_VARIATION: Final = 0.05
"""Share of the assignments that must have moved for a change to be abrupt, beyond what noise moves."""
ABRUPT_TIMES: Final = 2.0
"""How many times the layer's usual change between windows an abrupt one is."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected load of the next window, if it carries as many tokens as the last.

    Attributes:
        tokens: float64 ``[layers, experts]``, assignments.
        uses_last_window: bool ``[layers]``, the last window alone was used: it changed abruptly, or there is
            no other.
        persistence: float64 ``[layers]``, 0 (deviations are noise) … 1 (the last window is what comes); NaN
            for a layer without tokens.
    """

    tokens: FloatArray
    uses_last_window: BoolArray
    persistence: FloatArray


@dataclass
class _Track:
    """What is known of each layer after some windows; arrays ``[layers, …]``."""

    mean: FloatArray
    last: FloatArray
    seen: IntArray
    products: FloatArray
    squares: FloatArray
    pairs: FloatArray
    usual_change: list[FloatArray]


def forecast_load(tokens_per_window: IntArray, design_effect: FloatArray | None = None) -> Forecast:
    """Forecast the next window.

    Args:
        tokens_per_window: int64 ``[windows, layers, experts]``, assignments in equally long windows, the
            oldest first. A layer's windows without tokens are passed over.
        design_effect: float64 ``[layers]``, D within a window; None or NaN counts as 1 in the shrinkage,
            and with NaN no change of the layer is taken for abrupt.

    Raises:
        ShapeError: no window, or other axes.
    """
    if tokens_per_window.ndim != 3 or not len(tokens_per_window):
        raise ShapeError(
            f"a forecast needs the axes [windows, layers, experts] and one window at least, got the shape "
            f"{tokens_per_window.shape}"
        )
    num_layers = tokens_per_window.shape[1]
    effect = np.ones(num_layers) if design_effect is None else np.asarray(design_effect, dtype=np.float64)
    track = _start(tokens_per_window.shape[1:])
    latest = np.zeros(tokens_per_window.shape[1:], dtype=np.int64)
    for window in tokens_per_window:
        has_tokens = window.any(axis=1)
        is_abrupt = has_tokens & (track.seen > 0) & _changed_abruptly(latest, window, effect, track)
        _follow(track, log_shares(window, np.nan_to_num(effect, nan=1.0)), has_tokens, is_abrupt)
        latest = np.where(has_tokens[:, None], window, latest)
    persistence = _persistence(track)
    expected = np.exp(track.mean + persistence[:, None] * (track.last - track.mean))
    total = latest.sum(axis=1, keepdims=True)
    known = track.seen > 0
    tokens = np.where(known[:, None], expected / expected.sum(axis=1, keepdims=True) * total, 0.0)
    return Forecast(lock(tokens), lock(track.seen <= 1), lock(np.where(known, persistence, np.nan)))


def log_shares(tokens_per_layer_expert: IntArray, design_effect: FloatArray) -> FloatArray:
    """Take the logarithm of shares that are pulled towards even ones as far as noise demands.

    Effective counts n / D are Poisson around rates that are Gamma over the experts, with the mean and
    variance of the layer (variance less the Poisson part): the posterior mean is (a + n/D) / (b + 1).

    Returns:
        float64 ``[layers, experts]``; 0 for a layer without tokens.
    """
    counts = tokens_per_layer_expert / design_effect[:, None]
    mean = counts.mean(axis=1, keepdims=True)
    safe = np.where(mean > 0, mean, 1.0)
    spread = np.maximum(counts.var(axis=1, keepdims=True) - mean, SMALLEST_SPREAD * safe**2)
    rate = (safe**2 / spread + counts) / (safe / spread + 1)
    shares: FloatArray = np.where(mean > 0, np.log(rate / rate.sum(axis=1, keepdims=True)), 0.0)
    return shares


def _start(shape: tuple[int, ...]) -> _Track:
    layers = shape[0]
    sums = (np.zeros(layers), np.zeros(layers), np.zeros(layers))
    return _Track(np.zeros(shape), np.zeros(shape), np.zeros(layers, dtype=np.int64), *sums, [])


def _changed_abruptly(
    earlier: IntArray, later: IntArray, design_effect: FloatArray, track: _Track
) -> BoolArray:
    """Tell which layers changed far more than they use to, and note this change: bool ``[layers]``.

    New traffic changes every layer at once, so a change that no layer alone shows surely is also looked for
    in all of them together: the sum of their X² / D, and their mean variation.
    """
    drift = measure_drift(earlier, later, design_effect)
    above_floor = drift.total_variation - drift.floor
    change = np.append(np.nan_to_num(above_floor), _mean_of_known(above_floor))
    usual = np.median(track.usual_change, axis=0) if track.usual_change else np.zeros(len(change))
    is_large = change > np.maximum(ABRUPT_VARIATION, ABRUPT_TIMES * usual)
    if track.seen.any():
        track.usual_change.append(change)
    known = np.isfinite(drift.statistic)
    p_together = chi2.sf(drift.statistic[known].sum(), max(int(drift.degrees[known].sum()), 1))
    everywhere = is_large[-1] and p_together < SIGNIFICANCE
    is_abrupt: BoolArray = (drift.is_significant & is_large[:-1]) | (known & everywhere)
    return is_abrupt


def _mean_of_known(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else 0.0


def _follow(track: _Track, shares: FloatArray, has_tokens: BoolArray, is_abrupt: BoolArray) -> None:
    """Take one window in: regression first, then the moving average."""
    goes_on = has_tokens & ~is_abrupt & (track.seen > 1)
    before, after = track.last - track.mean, shares - track.mean
    for sums, new in (
        (track.products, (before * after).sum(axis=1)),
        (track.squares, (before**2).sum(axis=1)),
        (track.pairs, np.ones(len(shares))),
    ):
        sums[goes_on] = REMEMBERED * sums[goes_on] + new[goes_on]
    track.seen = np.where(is_abrupt, 0, track.seen) + has_tokens
    weight = np.maximum(SLOW, 1 / np.maximum(track.seen, 1))[:, None]
    track.mean = np.where(has_tokens[:, None], track.mean + weight * (shares - track.mean), track.mean)
    track.last = np.where(has_tokens[:, None], shares, track.last)


def _persistence(track: _Track) -> FloatArray:
    """Regress through the origin, with one more pair of windows of the persistence assumed."""
    one_pair = np.where(track.pairs > 0, track.squares / np.maximum(track.pairs, 1), 1.0)
    slope = (track.products + PERSISTENCE_UNKNOWN * one_pair) / np.maximum(track.squares + one_pair, 1e-300)
    return np.clip(slope, 0.0, 1.0)
