"""Which experts get more than their share, guarded against noise, ranked by the harm they do.

Twice the median is a weak sign of harm: in a router whose rates spread lognormally (σ = 0.5) 8 % of the
experts lie above it by construction. So a hot expert is first *certain*, then *ranked*: by the part of a
rank's capacity that one copy of it takes, and by what the hottest rank would gain without it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from scipy.special import gammaincc

from moescope.analysis.imbalance import BoolArray, Imbalance, ReplicaArray, split_over_copies
from moescope.schemas.records import FloatArray, IntArray

_MIN_PRIOR_VARIANCE: Final = 0.02
"""Smallest prior variance as a part of mean²: the prior never claims that all experts are the same."""


@dataclass(frozen=True, slots=True)
class HotExpert:
    """One hot expert, in the units of :class:`HotExperts`."""

    layer: int
    expert: int
    tokens: int
    times_median: float
    replicas: int
    capacity_share: float
    relief: float
    is_harmful: bool


@dataclass(frozen=True, slots=True)
class HotExperts:
    """Hot experts of one EP group and phase, the most harmful first. All arrays are ``[hot experts]``.

    Attributes:
        layer_row: int64, row of the window's layer axis.
        layer: int64, the model's layer index.
        expert: int64, logical expert.
        tokens: int64, assignments in the window.
        times_median: float64, assignments / the layer's median expert (of the shrunk rates where that is 0).
        replicas: int64, copies in the group.
        capacity_share: float64, q = (assignments / copies) / mean rank load.
        relief: float64, by how much the layer's max / mean would fall without this expert, its tokens gone.
        is_harmful: bool.
    """

    layer_row: IntArray
    layer: IntArray
    expert: IntArray
    tokens: IntArray
    times_median: FloatArray
    replicas: IntArray
    capacity_share: FloatArray
    relief: FloatArray
    is_harmful: BoolArray

    def __len__(self) -> int:
        return len(self.layer)

    @property
    def num_harmful(self) -> int:
        """How many of them do harm; they come first."""
        return int(self.is_harmful.sum())

    def top(self, count: int) -> tuple[HotExpert, ...]:
        """The first ``count``, as rows."""
        columns = [getattr(self, field.name)[:count].tolist() for field in fields(HotExpert)]
        return tuple(HotExpert(*row) for row in zip(*columns, strict=True))


def flag_hot_experts(
    tokens_per_layer_expert: IntArray, design_effect: FloatArray, *, ratio: float, confidence: float
) -> BoolArray:
    """Flag the experts whose rate is above ``ratio`` × their layer's median with ``confidence``.

    Counts are divided by the design effect, n' = n / D, and shrunk by a Gamma prior fitted to the layer by
    moments: v = max(var − mean, 0.02 · mean²), a = mean² / v, b = mean / v. With m the median over experts of
    the posterior means (a + n') / (b + 1), an expert is hot iff P(Gamma(a + n', rate b + 1) > ratio · m) >
    confidence (DESIGN §6). A uniform router gets 0.02 alarms a layer of 896 at worst, where raw counts give
    71 to 245.

    Args:
        tokens_per_layer_expert: int64 ``[layers, experts]``.
        design_effect: float64 ``[layers]``; a layer with NaN (unknown) is not judged.
        ratio: multiple of the median.
        confidence: posterior probability.

    Returns:
        bool ``[layers, experts]``.
    """
    shape, rate = fit_posterior(tokens_per_layer_expert, design_effect)
    means = shape / rate
    limit = ratio * np.median(means, axis=1, keepdims=True)
    # The 1 - confidence quantile of a Gamma lies below its mean, so only these can pass; NaN cannot.
    candidates = means > limit
    hot = np.zeros(means.shape, dtype=np.bool_)
    scaled = np.broadcast_to(rate * limit, means.shape)[candidates]
    hot[candidates] = gammaincc(shape[candidates], scaled) > confidence
    return hot


def rank_by_harm(
    hot: BoolArray,
    layers: IntArray,
    tokens_per_layer_expert: IntArray,
    replicas_per_rank_layer_expert: ReplicaArray,
    imbalance: Imbalance,
    *,
    harmful_capacity_share: float,
    harmful_relief_share: float,
) -> HotExperts:
    """Order the flagged experts by the harm they do.

    Capacity share q = (n / copies) / (N / G): the part of a rank's even share of the layer that one copy
    takes (planner's notes, §7). Relief: the fall of the layer's max / mean if the expert's tokens were gone;
    0 unless every busiest rank holds a copy. Harmful are those with q above ``harmful_capacity_share``, and
    in an imbalanced layer those whose relief is at least ``harmful_relief_share`` of its excess,
    max / mean − 1: every expert of the busiest rank relieves it a little, few of them cause it. Order:
    harmful, then relief, then q.
    """
    layer_row, expert = np.nonzero(hot)
    copies = replicas_per_rank_layer_expert.sum(axis=0)
    load_per_copy = split_over_copies(tokens_per_layer_expert, copies)[layer_row, expert]
    mean_load = imbalance.rank_loads.mean(axis=1)[layer_row]
    share = np.divide(load_per_copy, mean_load, out=np.zeros(len(expert)), where=mean_load > 0)
    relief = _relief(imbalance.rank_loads, replicas_per_rank_layer_expert, layer_row, expert, load_per_copy)
    is_cause = relief >= harmful_relief_share * (imbalance.ratio[layer_row] - 1)
    harmful = (share > harmful_capacity_share) | (is_cause & imbalance.is_imbalanced[layer_row])
    order = np.lexsort((expert, layer_row, -share, -relief, ~harmful))
    tokens = tokens_per_layer_expert[layer_row, expert]
    columns: tuple[Any, ...] = (
        *(layer_row, layers[layer_row], expert, tokens),
        times_median(tokens_per_layer_expert)[layer_row, expert],
        *(copies[layer_row, expert].astype(np.int64), share, relief, harmful),
    )
    return HotExperts(*(column[order] for column in columns))


def times_median(tokens_per_layer_expert: IntArray) -> FloatArray:
    """Each expert's assignments as a multiple of its layer's median: float64 ``[layers, experts]``.

    Where the median is 0 the layer's mean stands in for it; a layer without tokens gives 0.
    """
    tokens = tokens_per_layer_expert.astype(np.float64)
    median = np.median(tokens, axis=1, keepdims=True)
    median = np.where(median > 0, median, tokens.mean(axis=1, keepdims=True))
    out: FloatArray = np.divide(tokens, median, out=np.zeros(tokens.shape), where=median > 0)
    return out


def fit_posterior(
    tokens_per_layer_expert: IntArray, design_effect: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Shape ``[layers, experts]`` and rate ``[layers, 1]`` of each expert's Gamma posterior.

    Of its rate in effective assignments a window, n / D, with the prior of :func:`flag_hot_experts`; NaN in a
    layer without tokens or with an unknown D.
    """
    counts = tokens_per_layer_expert / design_effect[:, None]
    mean = counts.mean(axis=1, keepdims=True)
    mean = np.where(mean > 0, mean, np.nan)
    variance = np.maximum(counts.var(axis=1, keepdims=True) - mean, _MIN_PRIOR_VARIANCE * mean**2)
    return mean**2 / variance + counts, mean / variance + 1


def _relief(
    rank_loads: FloatArray,
    replicas_per_rank_layer_expert: ReplicaArray,
    layer_row: IntArray,
    expert: IntArray,
    load_per_copy: FloatArray,
) -> FloatArray:
    loads = rank_loads[layer_row].T
    held = replicas_per_rank_layer_expert[:, layer_row, expert]
    fall = loads.max(axis=0, initial=0) - (loads - held * load_per_copy).max(axis=0, initial=0)
    mean = rank_loads.mean(axis=1)[layer_row]
    relief: FloatArray = np.divide(fall, mean, out=np.zeros(len(expert)), where=mean > 0)
    return relief
