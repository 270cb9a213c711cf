"""Stragglers: which rank, link or node the others wait for, and why.

A rank is late when the others wait longer for it than is usual over such a link. Late because of its load is
**overloaded**: moving or copying experts helps. Late at an ordinary load is **slow**: look at the machine.
Late only for ranks on other nodes, or only for one of them, is a **slow link**. Everything must hold in
several windows, the newest among them, before it is named. Thresholds: :class:`StragglerRules`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from moescope.analysis import straggler_phrases as phrases
from moescope.analysis import words
from moescope.analysis.imbalance import BoolArray
from moescope.analysis.straggler import Confidence, Straggler, StragglerKind
from moescope.analysis.straggler_causes import examine, find_cause
from moescope.analysis.straggler_evidence import StragglerEvidence, StragglerRules
from moescope.analysis.straggler_paths import Path, find_slow_nodes, find_slow_pairs, find_slow_ways
from moescope.analysis.straggler_persistence import lasts, newest
from moescope.analysis.straggler_signals import Signs, StageSigns, measure_experts, read_signs
from moescope.schemas.attributes import DispatchStage
from moescope.schemas.records import FloatArray

_MINUTE: Final = 60.0


def find_stragglers(
    evidence: StragglerEvidence, rules: StragglerRules, signs: Signs | None = None
) -> tuple[Straggler, ...]:
    """Name what the ranks of an EP group wait for, the costliest first; empty where nothing is the matter.

    Args:
        evidence: what is known.
        rules: from when on.
        signs: read from the evidence where somebody needs them too.
    """
    signs = read_signs(evidence, rules) if signs is None else signs
    if signs is None:
        return ()
    search = _Search(evidence, rules, signs, tuple(_slow_nodes(evidence, rules, signs)))
    found = [*search.nodes(), *search.ranks(), *search.ways()]
    return tuple(sorted(found, key=lambda one: (-(one.cost_seconds_per_minute or 0), -one.times_others)))


@dataclass(frozen=True, slots=True)
class _Search:
    evidence: StragglerEvidence
    rules: StragglerRules
    signs: Signs
    slow_nodes: tuple[tuple[DispatchStage, Path], ...]

    def nodes(self) -> Iterator[Straggler]:
        for stage, path in self.slow_nodes:
            yield self._of_path(StragglerKind.SLOW_NODE, stage, path)

    def ranks(self) -> Iterator[Straggler]:
        in_node = self._in_slow_nodes()
        for rank in np.flatnonzero(~in_node):
            found = self._late_rank(int(rank)) if self.signs.stages else self._slow_by_itself(int(rank))
            if found is not None:
                yield found

    def ways(self) -> Iterator[Straggler]:
        late = self._in_slow_nodes()
        for rank in np.flatnonzero(~late):
            late[rank] = self._is_late(int(rank))
        named: set[tuple[int, ...]] = set()
        has_slow_node = bool(self._in_slow_nodes().any())
        for stage, one in self.signs.lateness.items():
            common = (self.rules, _least_lost(self.evidence, self.rules))
            ways = [] if has_slow_node else list(find_slow_ways(one, self.signs.links, *common, late))
            odd = late.copy()
            for path in ways:
                odd[list(path.ranks)] = True
            for path in [*ways, *find_slow_pairs(one, *common, odd)]:
                if path.ranks not in named and not odd[list(path.ranks[1:])].any():
                    named.add(path.ranks)
                    yield self._of_path(StragglerKind.SLOW_LINK, stage, path)

    def _in_slow_nodes(self) -> BoolArray:
        members = np.zeros(self.evidence.num_ranks, dtype=np.bool_)
        for _, path in self.slow_nodes:
            members[list(path.ranks)] = True
        return members

    def _seen(self, rank: int) -> tuple[BoolArray, BoolArray]:
        """In which windows a rank was late and cost enough; and of which windows that is known."""
        late = np.any([one.is_late[:, rank] for one in self.signs.stages.values()], axis=0)
        known = np.any([np.isfinite(one.ratio[:, rank]) for one in self.signs.stages.values()], axis=0)
        share = self.signs.lost_share(self.evidence.seconds)[:, rank]
        return late & (np.isnan(share) | (np.nan_to_num(share) >= self.rules.cost_share)), known

    def _is_late(self, rank: int) -> bool:
        return bool(self.signs.stages) and lasts(*self._seen(rank), self.rules.windows)

    def _late_rank(self, rank: int) -> Straggler | None:
        seen, known = self._seen(rank)
        if not lasts(seen, known, self.rules.windows):
            return None
        judged = newest(seen, known, self.rules.windows)
        suspect = examine(self.evidence, self.signs, self.rules, rank, judged)
        cause = find_cause(suspect, self.rules)
        stage, signs = self._worst_stage(rank, judged)
        ratio, times_slower = float(np.median(signs.ratio[judged, rank])), suspect.at_load
        lateness = (phrases.wait_words if signs.from_waits else phrases.call_words)(stage, ratio)
        is_slow = cause.kind is StragglerKind.SLOW_RANK and times_slower >= self.rules.time_ratio
        share = self.signs.lost_share(self.evidence.seconds)[judged, rank]
        lost = None if np.isnan(share).any() else float(np.median(share))
        others = float(np.median(signs.others[judged, rank]))
        return self._name(
            *(cause.kind, (rank,), seen, known),
            times_others=times_slower if is_slow else ratio,
            sign=phrases.AT_LOAD if is_slow else phrases.WAITED if signs.from_waits else phrases.SHORTER,
            confidence=cause.confidence,
            evidence=(lateness, *cause.evidence[1:]) if is_slow else (lateness, *cause.evidence),
            lost_share=lost,
            cost=None if lost is None else lost * others * _MINUTE,
            share_of_waiting=_known(signs.share[judged, rank]),
        )

    def _worst_stage(self, rank: int, judged: BoolArray) -> tuple[DispatchStage, StageSigns]:
        def lateness(item: tuple[DispatchStage, StageSigns]) -> tuple[float, float]:
            one = item[1]
            return (
                float(np.nan_to_num(one.lost_seconds[judged, rank]).sum()),
                float(np.nan_to_num(one.ratio[judged, rank]).sum()),
            )

        # What took no part in the verdict is not shown for it.
        late = {stage: one for stage, one in self.signs.stages.items() if one.is_late[judged, rank].any()}
        return max(late.items(), key=lateness)

    def _slow_by_itself(self, rank: int) -> Straggler | None:
        """Where nobody says who waits: a rank whose experts are slow at equal load, or its passes."""
        newest_windows = np.arange(self.evidence.num_windows) >= (
            self.evidence.num_windows - self.rules.recent_windows
        )
        at_load, too_long = measure_experts(self.evidence, rank, newest_windows)
        passes = self.signs.pass_time[:, rank]
        unknown = np.full(len(passes), np.nan)
        share = too_long / self.evidence.seconds
        by_experts = self._slow_by(rank, at_load, share, phrases.AT_LOAD, Confidence.MEDIUM)
        return by_experts or self._slow_by(rank, passes, unknown, phrases.PASSES, Confidence.LOW)

    def _slow_by(
        self, rank: int, ratio: FloatArray, share: FloatArray, sign: str, sure: Confidence
    ) -> Straggler | None:
        known = np.isfinite(ratio)
        seen = known & (np.nan_to_num(ratio) >= self.rules.time_ratio)
        seen &= np.isnan(share) | (np.nan_to_num(share) >= self.rules.cost_share)
        if not lasts(seen, known, self.rules.windows):
            return None
        judged = newest(seen, known, self.rules.windows)
        times = float(np.median(ratio[judged]))
        return self._name(
            *(StragglerKind.SLOW_RANK, (rank,), seen, known),
            times_others=times,
            sign=sign,
            confidence=sure,
            evidence=(phrases.NO_WAITS,),
            lost_share=_known(share[judged]),
        )

    def _of_path(self, kind: StragglerKind, stage: DispatchStage, path: Path) -> Straggler:
        judged = newest(path.is_slow, path.is_known, self.rules.windows)
        ratio = float(np.median(path.ratio[judged]))
        lost = float(np.median(path.lost[judged] / self.evidence.seconds[judged]))
        is_time = self.evidence.waits_are_time
        return self._name(
            *(kind, path.ranks, path.is_slow, path.is_known),
            times_others=ratio,
            sign=phrases.PATH_SIGNS[path.kind],
            confidence=Confidence.MEDIUM if self.signs.links.is_known else Confidence.LOW,
            evidence=(phrases.PATH_WORDS[path.kind].format(stage.value),),
            node=None if path.node is None else self._node_name(path),
            cost=lost * _MINUTE if is_time else None,
        )

    def _node_name(self, path: Path) -> str:
        name = self.signs.links.names[path.node or 0]
        ranks = self.evidence.ranks[list(path.ranks)]
        return name or f"ranks {ranks.min()} to {ranks.max()}"

    def _name(
        self,
        kind: StragglerKind,
        positions: tuple[int, ...],
        seen: BoolArray,
        known: BoolArray,
        *,
        times_others: float,
        sign: str,
        cost: float | None = None,
        **facts: Any,
    ) -> Straggler:
        judged = np.flatnonzero(known)[-self.rules.recent_windows :]
        load = float(self.signs.load[positions[0]])
        return Straggler(
            kind=kind,
            ranks=tuple(int(self.evidence.ranks[position]) for position in positions),
            load_of_median=None if np.isnan(load) or kind is StragglerKind.SLOW_NODE else load,
            windows=int(seen[judged].sum()),
            judged_windows=len(judged),
            all_late=int(seen.sum()),
            all_windows=int(known.sum()),
            times_others=times_others,
            says=sign.format(words.compact(times_others)),
            window_seconds=self.evidence.window_seconds,
            since_ms=int(self.evidence.starts_ms[_begin(seen, known)]),
            cost_seconds_per_minute=cost,
            advice=phrases.ADVICE[kind],
            **facts,
        )


def _slow_nodes(
    evidence: StragglerEvidence, rules: StragglerRules, signs: Signs
) -> Iterator[tuple[DispatchStage, Path]]:
    named: set[int | None] = set()
    for stage, one in signs.lateness.items():
        for path in find_slow_nodes(one, signs.links, rules, _least_lost(evidence, rules)):
            if path.node not in named:
                named.add(path.node)
                yield stage, path


def _least_lost(evidence: StragglerEvidence, rules: StragglerRules) -> FloatArray:
    """What a rank must lose in each window before it counts; where waits are no time, anything counts."""
    return evidence.seconds * (rules.cost_share if evidence.waits_are_time else 0.0)


def _known(values: FloatArray) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None


def _begin(seen: BoolArray, known: BoolArray) -> int:
    """First window of the stretch that lasts until now: back to where it was absent twice in a row."""
    position, absent = int(np.flatnonzero(seen)[-1]), 0
    begin = position
    while position > 0 and absent < 2:
        position -= 1
        if seen[position]:
            begin, absent = position, 0
        elif known[position]:
            absent += 1
    return begin
