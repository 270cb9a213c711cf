"""How much work each rank has, summed over layers and by layer, now and over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.expert_load import TimeArray
from moescope.analysis.frozen import lock, locked_int64
from moescope.analysis.imbalance import (
    RATIO_FORMULA,
    Imbalance,
    ReplicaArray,
    judge_imbalance,
    split_over_copies,
)
from moescope.analysis.imbalance_history import read_placements, select_layers
from moescope.analysis.load_windows import LoadWindows, read_load_windows
from moescope.analysis.placement import PlacementSnapshot
from moescope.analysis.store import Store
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.settings import Settings

STEPS: Final = 30
"""About so many windows make a history."""

_MS: Final = 1000
_UNITS_SECONDS: Final = ((1_800, 60), (7_200, 600), (float("inf"), 3_600))
"""Windows up to so many seconds are whole numbers of the intervals in which their table is kept."""


@dataclass(frozen=True, slots=True)
class RankWork:
    """The work of each rank of one scope in one window; read-only.

    Attributes:
        ranks: int64 ``[ranks]``, EP ranks, increasing.
        layers: int64 ``[layers]``, the model's layer indices.
        of_mean: float64 ``[ranks]``, assignments over all layers, over the mean rank's; NaN without any.
        of_layer_mean: float64 ``[layers, ranks]``, the same layer by layer.
        total: the balance of the sums over all layers, as that of one layer.
    """

    ranks: IntArray
    layers: IntArray
    of_mean: FloatArray
    of_layer_mean: FloatArray
    total: Imbalance

    @property
    def worst_row(self) -> IntArray:
        """Position of the layer in which each rank has most over the mean: int64 ``[ranks]``."""
        rows: IntArray = np.nan_to_num(self.of_layer_mean, nan=0.0).argmax(axis=0)
        return rows

    @property
    def worst_of_mean(self) -> FloatArray:
        """What each rank has there, over that layer's mean: float64 ``[ranks]``, NaN without any layer."""
        if not len(self.layers):
            return np.full(len(self.ranks), np.nan)
        worst: FloatArray = self.of_layer_mean[self.worst_row, np.arange(len(self.ranks))]
        return worst

    def position(self, rank: int) -> int | None:
        """Where an EP rank stands on the rank axis; None where it reported no placement."""
        at = np.flatnonzero(self.ranks == rank)
        return int(at[0]) if len(at) else None

    def worst_rows_of(self, position: int, limit: int) -> IntArray:
        """Positions of the ``limit`` layers in which a rank has most over the mean, those first: int64."""
        order = np.argsort(-np.nan_to_num(self.of_layer_mean[:, position], nan=0.0), kind="stable")
        return locked_int64(order[:limit])


@dataclass(frozen=True, slots=True)
class RankLoadHistory:
    """The work of each rank over time, summed over layers; read-only.

    Attributes:
        starts_ms: int64 ``[windows]``, Unix milliseconds, the oldest first.
        seconds: length of a window.
        ranks: int64 ``[ranks]``, EP ranks, increasing.
        of_mean: float64 ``[windows, ranks]``, assignments over the mean rank's; NaN without any, or where the
            placement of that time is not known.
    """

    starts_ms: IntArray
    seconds: float
    ranks: IntArray
    of_mean: FloatArray

    @property
    def times(self) -> TimeArray:
        """Starts of the windows, UTC: datetime64[ms] ``[windows]``."""
        return self.starts_ms.astype("datetime64[ms]")


def measure_rank_work(assessment: LoadAssessment, settings: Settings) -> RankWork | None:
    """Sum up the rank loads of an assessment; None without a placement.

    The sums are judged as one layer is, with the mean design effect of the layers, weighted by their tokens.
    """
    imbalance, placement = assessment.imbalance, assessment.placement
    if imbalance is None or placement is None:
        return None
    loads = imbalance.rank_loads
    sums = loads.sum(axis=0)
    weights = loads.sum(axis=1)
    effect = np.nan_to_num(assessment.design_effect, nan=1.0)
    mean_effect = float(effect @ weights / weights.sum()) if weights.sum() else 1.0
    return RankWork(
        placement.ranks,
        assessment.window.layers,
        lock(_of_mean(sums)),
        lock(_of_mean(loads)),
        judge_imbalance(
            sums[None],
            np.array([mean_effect]),
            acceptable_ratio=settings.imbalance_ratio,
            min_mean_load=settings.min_mean_rank_load,
        ),
    )


def describe_rank_work(work: RankWork) -> str:
    """Who has most over all layers and in one layer, in two sentences; empty without tokens."""
    if not np.isfinite(work.of_mean).any():
        return ""
    busiest, idlest = int(np.nanargmax(work.of_mean)), int(np.nanargmin(work.of_mean))
    if len(work.ranks) == 1:
        return "One rank has all the work."
    net = float(work.total.net_ratio[0])
    noise = "no more than chance makes of it" if net <= 1 else f"{net:.2f} × net of noise"
    worst = int(np.nanargmax(work.worst_of_mean))
    return (
        f"Over all layers rank {work.ranks[busiest]} has most, {work.of_mean[busiest]:.2f} × the mean rank's "
        f"assignments ({noise}), and rank {work.ranks[idlest]} least, {work.of_mean[idlest]:.2f} ×. "
        f"A pass waits layer by layer: in layer {work.layers[work.worst_row[worst]]} rank "
        f"{work.ranks[worst]} has {work.worst_of_mean[worst]:.2f} × that layer's mean ({RATIO_FORMULA})."
    )


def choose_history_seconds(window_seconds: float) -> int:
    """Length of a window of a history, in whole minutes, ten minutes or hours as the roll-ups are kept."""
    step = window_seconds / STEPS
    unit = next(unit for limit, unit in _UNITS_SECONDS if step <= limit)
    return max(-(-int(step) // unit), 1) * unit


def read_rank_load_history(store: Store, assessment: LoadAssessment, settings: Settings) -> RankLoadHistory:
    """Read how much work each rank had over the window of an assessment.

    Raises:
        StoreError: the store cannot answer.
    """
    window = assessment.window
    seconds = choose_history_seconds(window.seconds)
    windows = read_load_windows(
        *(store, window.scope),
        window_seconds=seconds,
        count=max(int(window.seconds // seconds), 1),
        settings=settings,
        end_ms=window.end_ms,
    )
    ends_ms = windows.starts_ms + round(windows.seconds * _MS)
    placements = read_placements(store, window, assessment.placement, ends_ms)
    return follow_rank_loads(windows, window.layers, placements)


def follow_rank_loads(
    windows: LoadWindows, layers: IntArray, placements: Sequence[PlacementSnapshot | None]
) -> RankLoadHistory:
    """Work out each rank's assignments in every window with the placement of its time.

    Args:
        windows: may know other layers.
        layers: int64 ``[layers]``, the layer axis of the placements.
        placements: one a window; None where no rank had reported one.
    """
    tokens = select_layers(windows, layers)
    known = [one.ranks for one in placements if one is not None]
    ranks = np.unique(np.concatenate(known)) if known else np.empty(0, dtype=np.int64)
    of_mean = np.full((len(placements), len(ranks)), np.nan)
    for placement in {id(one): one for one in placements if one is not None}.values():
        rows = np.flatnonzero([one is placement for one in placements])
        loads = _sum_over_layers(tokens[rows], placement.replicas)
        of_mean[np.ix_(rows, np.searchsorted(ranks, placement.ranks))] = _of_mean(loads)
    return RankLoadHistory(windows.starts_ms, windows.seconds, locked_int64(ranks), lock(of_mean))


def _sum_over_layers(tokens_per_window_layer_expert: IntArray, replicas: ReplicaArray) -> FloatArray:
    """Assignments of each rank over all layers: float64 ``[windows, ranks]``."""
    copies = replicas.sum(axis=0, dtype=np.int64)
    loads = np.zeros((len(tokens_per_window_layer_expert), len(replicas)))
    for layer in range(copies.shape[0]):
        tokens = tokens_per_window_layer_expert[:, layer]
        per_copy = split_over_copies(tokens, np.broadcast_to(copies[layer], tokens.shape))
        loads += per_copy @ replicas[:, layer].T
    return loads


def _of_mean(loads: FloatArray) -> FloatArray:
    """Each load over the mean of the last axis, NaN where there is none."""
    mean = loads.mean(axis=-1, keepdims=True) if loads.shape[-1] else np.zeros((*loads.shape[:-1], 1))
    ratio: FloatArray = np.divide(loads, mean, out=np.full(loads.shape, np.nan), where=mean > 0)
    return ratio
