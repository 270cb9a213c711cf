"""Every sign of lateness side by side: ``[windows, ranks]`` of one EP group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis.imbalance import BoolArray
from moescope.analysis.medians import median_of_known
from moescope.analysis.straggler_evidence import StragglerEvidence, StragglerRules, of_median
from moescope.analysis.straggler_links import Links, find_links
from moescope.analysis.straggler_times import exchange_seconds, pass_time_at_tokens, time_at_load
from moescope.analysis.straggler_waits import Lateness, measure_lateness
from moescope.schemas.attributes import DispatchStage
from moescope.schemas.records import FloatArray

_DEVIATIONS: Final = 3.5
_FEWEST_RANKS: Final = 3
"""Of two ranks, neither is the usual one."""


@dataclass(frozen=True, slots=True)
class StageSigns:
    """How late each rank was in one stage; NaN where unknown.

    Attributes:
        ratio: float64 ``[windows, ranks]``: times that the others waited as long for it as is usual.
        lost_seconds: float64 ``[windows, ranks]``: what each other rank lost to it in a window; NaN where the
            engine counts no time.
        others: float64 ``[windows, ranks]``: how many others that is.
        share: float64 ``[windows, ranks]``: its part of all waiting; NaN where only durations are known.
        is_late: bool ``[windows, ranks]``: ratio above the rule, and out of the ordinary.
        from_waits: False where durations of the exchanges tell it: then the late rank's is the shortest.
    """

    ratio: FloatArray
    lost_seconds: FloatArray
    others: FloatArray
    share: FloatArray
    is_late: BoolArray
    from_waits: bool


@dataclass(frozen=True, slots=True)
class Signs:
    """All of it.

    Attributes:
        stages: of the stages that are known.
        lateness: the wait matrices of the stages that have one.
        load: float64 ``[ranks]``: assignments over the median rank's, of the phase where it is largest.
        tokens: float64 ``[ranks]``: tokens of the rank's own passes, over the median rank's.
        pass_time: float64 ``[windows, ranks]``: of a pass over the median rank's, at its tokens.
    """

    links: Links
    stages: Mapping[DispatchStage, StageSigns]
    lateness: Mapping[DispatchStage, Lateness]
    load: FloatArray
    tokens: FloatArray
    pass_time: FloatArray

    def lost_share(self, seconds: FloatArray) -> FloatArray:
        """Part of their time that others wait for each rank: float64 ``[windows, ranks]``; NaN: cycles."""
        parts = [np.where(one.is_late, one.lost_seconds, 0.0) for one in self.stages.values()]
        total: FloatArray = np.sum(parts, axis=0) / seconds[:, None]
        return total


def read_signs(evidence: StragglerEvidence, rules: StragglerRules) -> Signs | None:
    """Measure every sign that the evidence allows; None where there are too few ranks to compare."""
    if evidence.num_ranks < _FEWEST_RANKS or not evidence.num_windows:
        return None
    links = _links_of(evidence)
    lateness = {
        stage: measure_lateness(waits, links, rules.wait_ratio) for stage, waits in evidence.waits.items()
    }
    stages = {
        stage: _signs_of_waits(one, rules.wait_ratio, is_time=evidence.waits_are_time)
        for stage, one in lateness.items()
    }
    if not stages:
        stages = _signs_of_calls(evidence, rules.time_ratio)
    return Signs(
        *(links, stages, lateness),
        *(_largest_load(evidence), _own_tokens(evidence, rules), _pass_signs(evidence)),
    )


def _links_of(evidence: StragglerEvidence) -> Links:
    waits = evidence.waits.get(DispatchStage.DISPATCH)
    if waits is None:
        waits = next(iter(evidence.waits.values()), None)
    matrix = None
    if waits is not None and len(waits):
        windows, size = waits.shape[:2]
        matrix = median_of_known(waits.reshape(windows, -1), 0).reshape(size, size)
    return find_links(evidence.hosts, evidence.ranks, matrix)


def _signs_of_waits(one: Lateness, late_from: float, *, is_time: bool) -> StageSigns:
    lost = np.divide(one.excess, one.waiting, out=np.zeros_like(one.excess), where=one.waiting > 0)
    if not is_time:
        lost = np.full(lost.shape, np.nan)
    is_late = np.nan_to_num(one.ratio) >= _late_from(one.ratio, late_from)
    return StageSigns(one.ratio, lost, one.waiting, one.share, is_late, from_waits=True)


def _late_from(ratio: FloatArray, at_least: float) -> FloatArray:
    """From which ratio on a rank stands out, window by window: float64 ``[windows, 1]``.

    Where ranks differ widely in any case, the largest of them is no news: the ratio must also be 3.5 robust
    standard deviations above the median on a logarithmic scale (1.4826 × the median absolute deviation;
    Iglewicz and Hoaglin's rule for outliers).
    """
    logs = np.log(np.where(ratio > 0, ratio, np.nan))
    middle = median_of_known(logs, 1)[:, None]
    spread = 1.4826 * median_of_known(np.abs(logs - middle), 1)[:, None]
    stands_out = np.exp(np.nan_to_num(middle + _DEVIATIONS * spread))
    limit: FloatArray = np.maximum(stands_out, at_least)
    return limit


def _signs_of_calls(evidence: StragglerEvidence, late_from: float) -> dict[DispatchStage, StageSigns]:
    found = {}
    for stage in DispatchStage:
        parts = [
            exchange_seconds(one, stage, len(one.loads))
            for one in evidence.times.values()
            if stage in one.call_seconds and one.loads is not None
        ]
        if not parts:
            continue
        total = np.nansum(parts, axis=0)
        total[np.isnan(parts).all(axis=0)] = np.nan
        usual = median_of_known(total, 1)[:, None]
        ratio = np.divide(usual, total, out=np.full(total.shape, np.nan), where=total > 0)
        known = np.isfinite(total)
        others = np.maximum(known.sum(axis=1, keepdims=True) - known, 0).astype(np.float64)
        lost = np.maximum(np.nan_to_num(usual - total), 0)
        late = np.nan_to_num(ratio) >= _late_from(ratio, late_from)
        found[stage] = StageSigns(ratio, lost, others, np.full(total.shape, np.nan), late, from_waits=False)
    return found


def measure_experts(
    evidence: StragglerEvidence, rank: int, windows: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """One rank's expert time over what others need for its load, and what it takes too long, seconds.

    Phases are weighted by the time that the rank spends in them.

    Args:
        evidence: all of it.
        rank: position on the rank axis.
        windows: bool ``[windows]``: which are wanted.

    Returns:
        float64 ``[windows]`` each; NaN where unknown or not wanted.
    """
    weighted, weights, lost = (np.zeros(evidence.num_windows) for _ in range(3))
    for one in evidence.times.values():
        if one.expert_seconds is None or one.loads is None:
            continue
        for window in np.flatnonzero(windows):
            seconds = one.expert_seconds[window]
            ratio = time_at_load(seconds, one.loads, rank)
            spent = float(np.nansum(seconds[:, rank]) * np.nan_to_num(one.passes[window, rank]))
            if not np.isnan(ratio) and spent > 0:
                weighted[window] += ratio * spent
                weights[window] += spent
                lost[window] += spent * (1 - 1 / ratio)
    unknown = np.full(len(weights), np.nan)
    at_load = np.divide(weighted, weights, out=unknown, where=weights > 0)
    return at_load, np.where(weights > 0, lost, np.nan)


def _pass_signs(evidence: StragglerEvidence) -> FloatArray:
    """The least of the phases: what is slow is slow in all of them."""
    signs: FloatArray = np.full((evidence.num_windows, evidence.num_ranks), np.nan)
    for one in evidence.times.values():
        signs = np.fmin(signs, pass_time_at_tokens(one))
    return signs


def _largest_load(evidence: StragglerEvidence) -> FloatArray:
    loads: FloatArray = np.full(evidence.num_ranks, np.nan)
    for phase in evidence.times:
        loads = np.fmax(loads, evidence.load_of_median(phase))
    return loads


def _own_tokens(evidence: StragglerEvidence, rules: StragglerRules) -> FloatArray:
    """Tokens of the rank's own passes over the median rank's, phases weighted by the time they take."""
    weighted, weights = np.zeros(evidence.num_ranks), 0.0
    for one in evidence.times.values():
        newest = slice(-rules.recent_windows, None)
        ratio = of_median(median_of_known(one.pass_tokens[newest], 0))
        spent = float(np.nansum(one.passes[newest] * one.pass_seconds[newest]))
        weighted, weights = weighted + np.nan_to_num(ratio, nan=1.0) * spent, weights + spent
    tokens: FloatArray = weighted / weights if weights else np.full(evidence.num_ranks, np.nan)
    return tokens
