"""The load of one window to plan for, out of several."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from moescope.analysis.clustering import estimate_design_effect, sum_intervals
from moescope.analysis.forecast import forecast_load
from moescope.planning.load import PlanLoad
from moescope.schemas.errors import UsageError
from moescope.schemas.records import FloatArray

_MOST_WINDOWS: Final = 12
"""Steps of a file are put together to so many windows: one step is too little to score a plan by."""


@dataclass(frozen=True, slots=True, eq=False)
class PlannedFor:
    """What a plan is made for.

    Attributes:
        tokens: float64 ``[layers, experts]``.
        is_forecast: whether it is a forecast of the next window, and not the sum of all.
    """

    tokens: FloatArray
    is_forecast: bool


def group_windows(load: PlanLoad, windows: int | None) -> PlanLoad:
    """Put neighbouring steps of a file together; a store's windows stay as they are.

    Raises:
        UsageError: more windows are asked for than there are.
    """
    steps = len(load.tokens)
    if load.is_forecast_fair:
        return load
    if windows is not None and windows > steps:
        raise UsageError(f"--windows {windows}: the file has {steps}; ask for so many at most")
    count = min(windows or _MOST_WINDOWS, steps)
    design_effect = load.design_effect
    if design_effect is None and load.is_counts and steps > 1:
        counts = load.tokens.astype(np.int64)
        design_effect = estimate_design_effect(counts.sum(axis=0), sum_intervals(counts))
    firsts = np.arange(count) * steps // count
    grouped = np.add.reduceat(load.tokens, firsts, axis=0)
    is_asked = windows is not None and load.is_in_order and load.is_counts
    return replace(load, tokens=grouped, design_effect=design_effect, is_forecast_fair=is_asked)


def choose_load(load: PlanLoad) -> PlannedFor:
    """A forecast where there are windows of equal length in order; otherwise the sum of all."""
    if load.is_forecast_fair and len(load.tokens) > 1:
        forecast = forecast_load(load.tokens.astype(np.int64), load.design_effect)
        return PlannedFor(forecast.tokens, is_forecast=True)
    return PlannedFor(load.tokens.sum(axis=0), is_forecast=False)
