"""One expert over time: how often it is chosen, and how much of a rank that takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moescope.analysis.expert_load import LayerHistory, TimeArray
from moescope.analysis.placement import PlacementSnapshot
from moescope.schemas.attributes import Phase
from moescope.schemas.records import FloatArray, IntArray

_SECONDS_PER_MINUTE = 60


@dataclass(frozen=True, slots=True)
class ExpertSeries:
    """One expert in one phase. Arrays are ``[intervals]``.

    Attributes:
        times: datetime64[ms], UTC, starts of the intervals.
        per_minute: float64, assignments a minute.
        median_per_minute: float64, of the layer's median expert.
        capacity_share: float64, q of one copy with the placement given; NaN without one or without tokens.
    """

    times: TimeArray
    per_minute: FloatArray
    median_per_minute: FloatArray
    capacity_share: FloatArray


@dataclass(frozen=True, slots=True)
class ExpertHistory:
    """One expert, both phases.

    Attributes:
        copies: copies in the group, 0 when no placement is known.
        ranks: int64, EP ranks that hold one.
    """

    layer: int
    expert: int
    interval_seconds: int
    series: dict[Phase, ExpertSeries]
    copies: int
    ranks: IntArray


def trace_expert(
    history: LayerHistory, expert: int, placement: PlacementSnapshot | None, layer_row: int
) -> ExpertHistory:
    """Follow one expert through its layer's history.

    The capacity share takes the placement of the end of the window for all of it.
    """
    copies, ranks = 0, np.empty(0, dtype=np.int64)
    if placement is not None:
        copies = int(placement.replicas[:, layer_row, expert].sum())
        ranks = placement.ranks_of(layer_row, expert)
    num_ranks = len(placement.ranks) if placement is not None and copies else 0
    series = {
        phase: _series(history, phase, expert, copies=copies, num_ranks=num_ranks) for phase in history.times
    }
    return ExpertHistory(history.layer, expert, history.interval_seconds, series, copies, ranks)


def _series(history: LayerHistory, phase: Phase, expert: int, *, copies: int, num_ranks: int) -> ExpertSeries:
    tokens = history.tokens[phase].astype(np.float64)
    own, total = tokens[:, expert], tokens.sum(axis=1)
    share = np.full(len(own), np.nan)
    if num_ranks:
        np.divide(own * num_ranks, copies * total, out=share, where=total > 0)
    scale = _SECONDS_PER_MINUTE / history.interval_seconds
    median = np.median(tokens, axis=1) if len(tokens) else np.empty(0)
    return ExpertSeries(history.times[phase], own * scale, median * scale, share)
