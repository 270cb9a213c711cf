"""Which steps are worth a global budget of transfers? The best per transfer first, over all layers.

Every layer has a log of steps; a *prefix* of it is a placement. Its points (cost, ratio) have a lower convex
hull, along which the gain per transfer only falls. A heap takes hull edges of all layers, steepest first:
the sum of the layers' ratios stands for the time of a step, in which every layer waits for its hottest rank.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from moescope.analysis.replan_search import Step
from moescope.schemas.records import FloatArray, IntArray


class LayerLog:
    """The steps of one layer as cumulative costs.

    Attributes:
        costs: float64 ``[points, 2]``, copies and bytes moved after 0, 1, … steps.
        ratio: float64 ``[points]``, max / mean after as many steps.
        hull: int64, points of the lower convex hull over the share of the budget; the first is free.
    """

    def __init__(self, ratio_before: float, costs: FloatArray, ratio: FloatArray, budget: FloatArray) -> None:
        self.costs = np.concatenate([np.zeros((1, 2)), costs]).cumsum(axis=0)
        self.ratio = np.concatenate([[ratio_before], ratio])
        self._share = budget_share(self.costs, budget)
        self.hull = self._lower_hull()

    def slope(self, edge: int) -> float:
        """Gain of a hull edge per share of the budget."""
        start, end = self.hull[edge], self.hull[edge + 1]
        cost = self._share[end] - self._share[start]
        return float((self.ratio[start] - self.ratio[end]) / cost) if cost > 0 else np.inf

    def affordable(self, taken: int, left: FloatArray) -> int:
        """Best point that the budget left allows, from point ``taken`` on."""
        fits = ((self.costs - self.costs[taken]) <= left).all(axis=1) & (self.ratio < self.ratio[taken])
        points = np.flatnonzero(fits)
        return int(points[self.ratio[points].argmin()]) if len(points) else taken

    def _lower_hull(self) -> list[int]:
        hull: list[int] = []
        for point in np.lexsort((self.ratio, self._share)):
            if hull and self.ratio[point] >= self.ratio[hull[-1]]:
                continue
            while len(hull) > 1 and self._is_above(hull[-2], hull[-1], int(point)):
                hull.pop()
            hull.append(int(point))
        return hull

    def _is_above(self, first: int, middle: int, last: int) -> bool:
        run = self._share[last] - self._share[first]
        line = self.ratio[first] * (self._share[last] - self._share[middle])
        line += self.ratio[last] * (self._share[middle] - self._share[first])
        return bool(self.ratio[middle] * run >= line)


def budget_share(costs: FloatArray, budget: FloatArray) -> FloatArray:
    """Share of the scarcer budget: ``[…, 2]`` copies and bytes; copies alone without budgets."""
    if not np.isfinite(budget).any():
        return costs[..., 0].astype(np.float64)
    share: FloatArray = (costs / np.maximum(budget, 1e-9)).max(axis=-1)
    return share


def collect_logs(steps: Sequence[Step], ratio_before: FloatArray, budget: FloatArray) -> list[LayerLog]:
    """Sort the steps by layer."""
    if not steps:
        nothing = np.zeros((0, 2))
        return [LayerLog(float(ratio), nothing, nothing[:, 0], budget) for ratio in ratio_before]
    layer = np.concatenate([step.layers for step in steps])
    costs = np.concatenate([np.stack([step.moved, step.moved_bytes], axis=1) for step in steps])
    ratio = np.concatenate([step.ratio for step in steps])
    order = np.argsort(layer, kind="stable")
    ends = np.searchsorted(layer[order], np.arange(len(ratio_before) + 1))
    return [
        LayerLog(float(before), costs[rows], ratio[rows], budget)
        for before, rows in zip(ratio_before, np.split(order, ends[1:-1]), strict=True)
    ]


def choose_prefixes(logs: Sequence[LayerLog], budget: FloatArray, min_gain: FloatArray) -> IntArray:
    """Choose how many steps of each layer to take: int64 ``[layers]``.

    Args:
        logs: one per layer.
        budget: copies and bytes that all layers may move together; infinite without a limit.
        min_gain: float64 ``[layers]``, a layer that cannot gain more than this is left alone.
    """
    worthwhile = [
        index for index, log in enumerate(logs) if log.ratio[0] - log.ratio[log.hull[-1]] > min_gain[index]
    ]
    taken = np.zeros(len(logs), dtype=np.int64)
    taken[worthwhile] = [logs[index].hull[0] for index in worthwhile]
    left = budget.copy()
    queue = [(-logs[index].slope(0), index, 0) for index in worthwhile if len(logs[index].hull) > 1]
    heapq.heapify(queue)
    while queue:
        _, index, edge = heapq.heappop(queue)
        log = logs[index]
        wanted = log.hull[edge + 1]
        cost = log.costs[wanted] - log.costs[taken[index]]
        fits = bool((cost <= left).all())
        end = wanted if fits else log.affordable(int(taken[index]), left)
        left -= log.costs[end] - log.costs[taken[index]]
        taken[index] = end
        if fits and edge + 2 < len(log.hull):
            heapq.heappush(queue, (-log.slope(edge + 1), index, edge + 1))
    gain = np.array([log.ratio[0] - log.ratio[end] for log, end in zip(logs, taken, strict=True)])
    taken[gain <= min_gain] = 0
    return taken
