"""Where the expert load of two windows differs beyond noise: by layer, by rank and by expert."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betainc
from scipy.stats import norm

from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.comparison_series import FALSE_ALARMS
from moescope.analysis.drift import Drift, measure_drift
from moescope.analysis.frozen import lock, locked_int64
from moescope.analysis.imbalance import BoolArray
from moescope.analysis.placement import PlacementSnapshot
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.settings import Settings


@dataclass(frozen=True, slots=True)
class Differences:
    """One number of A and B along one axis; read-only.

    Attributes:
        labels: int64 ``[items]``: layers or ranks.
        of_a, of_b: float64 ``[items]``, NaN where unknown.
        is_beyond_noise: bool ``[items]``.
    """

    labels: IntArray
    of_a: FloatArray
    of_b: FloatArray
    is_beyond_noise: BoolArray

    @property
    def difference(self) -> FloatArray:
        """A − B: float64 ``[items]``."""
        difference: FloatArray = self.of_a - self.of_b
        return difference

    @property
    def num_higher(self) -> int:
        """Items that are higher in A, beyond noise."""
        return int((self.is_beyond_noise & (self.difference > 0)).sum())

    @property
    def num_lower(self) -> int:
        """Items that are lower in A, beyond noise."""
        return int((self.is_beyond_noise & (self.difference < 0)).sum())


@dataclass(frozen=True, slots=True)
class ExpertShifts:
    """Experts whose share of their layer differs beyond noise, the largest difference first; read-only.

    Attributes:
        layers, experts: int64 ``[shifts]``.
        share_of_a, share_of_b: float64 ``[shifts]``, of the layer's assignments.
        compared: how many were.
    """

    layers: IntArray
    experts: IntArray
    share_of_a: FloatArray
    share_of_b: FloatArray
    compared: int

    def __len__(self) -> int:
        """How many there are."""
        return len(self.layers)

    @property
    def times(self) -> FloatArray:
        """A's share over B's: float64 ``[shifts]``, infinite where B has none."""
        with np.errstate(divide="ignore"):
            times: FloatArray = self.share_of_a / self.share_of_b
        return times


@dataclass(frozen=True, slots=True)
class LoadComparison:
    """How the load of two windows of one shape compares.

    Attributes:
        layers: int64 ``[layers]``, those that both have.
        drift: of A from B, on that axis.
        balance: max / mean rank load net of noise, by layer; None where a placement is unknown.
        ranks: each rank's assignments over all layers, over the mean rank's; None where the ranks differ.
        experts: shares of their layers.
        moved_copies: expert copies of A's placement that are not on that rank in B's; None likewise.
    """

    layers: IntArray
    drift: Drift
    balance: Differences | None
    ranks: Differences | None
    experts: ExpertShifts
    moved_copies: int | None


def compare_loads(a: LoadAssessment, b: LoadAssessment, settings: Settings) -> LoadComparison | None:
    """Compare two windows, which may be of different length, or of different deployments.

    D is the larger one of both: what a window does within itself is no difference between them.

    Returns:
        None where they have different numbers of experts, or no layer in common.
    """
    layers, of_a, of_b = np.intersect1d(a.window.layers, b.window.layers, return_indices=True)
    if not len(layers) or a.window.scope.experts != b.window.scope.experts:
        return None
    tokens_a, tokens_b = a.window.tokens[of_a], b.window.tokens[of_b]
    effect = np.fmax(a.design_effect[of_a], b.design_effect[of_b])
    drift = measure_drift(tokens_b, tokens_a, effect, significance=settings.drift_significance)
    same_ranks = (
        a.placement is not None
        and b.placement is not None
        and np.array_equal(a.placement.ranks, b.placement.ranks)
    )
    return LoadComparison(
        *(locked_int64(layers), drift, _compare_balance(a, b, of_a, of_b, layers)),
        _compare_ranks(a, b) if same_ranks else None,
        find_expert_shifts(tokens_a, tokens_b, effect, layers),
        _count_moved(a.placement, b.placement, of_a, of_b) if same_ranks else None,
    )


def find_expert_shifts(
    tokens_of_a: IntArray, tokens_of_b: IntArray, design_effect: FloatArray, layers: IntArray
) -> ExpertShifts:
    """Find experts whose share of their layer differs by more than chance makes.

    Given how often an expert was chosen in both windows together, the part that falls into A is binomial with
    A's share of the layer's assignments (Przyborowski and Wilenski, 1940); counts are divided by D first. The
    p-value is two-sided and shared over all experts of all layers (Bonferroni).

    Args:
        tokens_of_a: int64 ``[layers, experts]``, assignments.
        tokens_of_b: of the other window, on the same axes.
        design_effect: float64 ``[layers]``; no expert of a layer with NaN (unknown) is found.
        layers: int64 ``[layers]``, the model's layer indices.
    """
    first, second = tokens_of_a.astype(np.float64), tokens_of_b.astype(np.float64)
    total_a, total_b = first.sum(axis=1, keepdims=True), second.sum(axis=1, keepdims=True)
    has_both = (total_a > 0) & (total_b > 0) & np.isfinite(design_effect)[:, None]
    share_of_a = np.where(has_both, total_a / np.maximum(total_a + total_b, 1), 0.5)
    effect = np.nan_to_num(design_effect, nan=1.0)[:, None]
    inside, together = first / effect, (first + second) / effect
    above = _at_least(inside, together, share_of_a)
    below = _at_least(together - inside, together, 1 - share_of_a)
    compared = has_both & (together > 0)
    limit = FALSE_ALARMS / max(int(compared.sum()), 1)
    row, expert = np.nonzero(compared & (2 * np.minimum(above, below) < limit))
    of_a, of_b = (
        np.divide(tokens, total, out=np.zeros(tokens.shape), where=total > 0)[row, expert]
        for tokens, total in ((first, total_a), (second, total_b))
    )
    order = np.argsort(-np.abs(of_a - of_b), kind="stable")
    return ExpertShifts(
        *(locked_int64(layers[row[order]]), locked_int64(expert[order])),
        share_of_a=lock(of_a[order]),
        share_of_b=lock(of_b[order]),
        compared=int(compared.sum()),
    )


def _at_least(number: FloatArray, together: FloatArray, share: FloatArray) -> FloatArray:
    """Probability that a binomial count is as large or larger; counts need not be whole."""
    tail: FloatArray = betainc(np.maximum(number, 1e-9), together - number + 1, share)
    return np.where(number > 0, tail, 1.0)


def _compare_balance(
    a: LoadAssessment, b: LoadAssessment, of_a: IntArray, of_b: IntArray, layers: IntArray
) -> Differences | None:
    """Net ratios; their noise is that of each window's busiest rank, √(D / load) of its ratio."""
    if a.imbalance is None or b.imbalance is None:
        return None
    net, variance = [], np.zeros(len(layers))
    judged = np.ones(len(layers), dtype=bool)
    for one, imbalance, rows in ((a, a.imbalance, of_a), (b, b.imbalance, of_b)):
        net.append(imbalance.net_ratio[rows])
        busiest = imbalance.rank_loads[rows].max(axis=1)
        effect = np.nan_to_num(one.design_effect[rows], nan=1.0)
        variance += imbalance.ratio[rows] ** 2 * effect / np.maximum(busiest, 1.0)
        judged &= imbalance.has_verdict[rows]
    return _differ(layers, net[0], net[1], variance, judged)


def _compare_ranks(a: LoadAssessment, b: LoadAssessment) -> Differences | None:
    """Work of each rank over all layers; its noise is √(D / load) of it, with the mean D of the layers."""
    if a.imbalance is None or b.imbalance is None or a.placement is None:
        return None
    of_mean, variance = [], np.zeros(len(a.placement.ranks))
    for one, imbalance in ((a, a.imbalance), (b, b.imbalance)):
        loads = imbalance.rank_loads
        sums, weights = loads.sum(axis=0), loads.sum(axis=1)
        if not weights.sum():
            return None
        effect = float(np.nan_to_num(one.design_effect, nan=1.0) @ weights / weights.sum())
        of_mean.append(sums / sums.mean())
        variance += (sums / sums.mean()) ** 2 * effect / np.maximum(sums, 1.0)
    known = np.ones(len(variance), dtype=bool)
    return _differ(a.placement.ranks, of_mean[0], of_mean[1], variance, known)


def _differ(
    labels: IntArray, of_a: FloatArray, of_b: FloatArray, variance: FloatArray, judged: BoolArray
) -> Differences:
    """Two-sided normal test of each item, shared over all of them."""
    spread = np.sqrt(np.where(variance > 0, variance, np.inf))
    limit = float(norm.isf(FALSE_ALARMS / 2 / max(int(judged.sum()), 1)))
    is_beyond = judged & (np.abs(of_a - of_b) > limit * spread)
    return Differences(locked_int64(labels), lock(of_a.copy()), lock(of_b.copy()), lock(is_beyond))


def _count_moved(
    a: PlacementSnapshot | None, b: PlacementSnapshot | None, of_a: IntArray, of_b: IntArray
) -> int | None:
    if a is None or b is None:
        return None
    now, then = a.replicas[:, of_a].astype(np.int64), b.replicas[:, of_b].astype(np.int64)
    return int(np.maximum(now - then, 0).sum())
