"""Judges a fleet again and again: everything at every judgement, and between two of them a closer look.

A closer look takes one question about one EP group, the most overdue one, so that none of them keeps a
judgement waiting for long. What it found is told until the next one of its kind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from moescope.analysis.fleet_judgement import judge_fleet
from moescope.analysis.fleet_looks import Look, take_look
from moescope.analysis.store import Store, open_store
from moescope.schemas.fleet import FindingCount, FleetJudgement, LookAge, LookKind
from moescope.schemas.settings import Settings

_MS: Final = 1000
_BEATS: Final = {LookKind.REPLAN: 10}
"""How many times as seldom as the others a look is taken: this one searches for moves, for seconds."""

_Unit: TypeAlias = tuple[str, str, LookKind]
"""Deployment, EP group, and what is looked at."""


@dataclass(frozen=True, slots=True)
class _Taken:
    at_ms: int
    look: Look


class FleetJudge:
    """Reads a store and says how each EP group is that sends windows now. For one thread.

    Args:
        dsn: of the store; opened at the first judgement, and again after it went away.
        settings: ``fleet_page_*`` and the thresholds of the analysis.
        clock_ms: Unix milliseconds.
    """

    def __init__(
        self,
        dsn: str,
        settings: Settings,
        *,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._dsn = dsn
        self._settings = settings
        self._clock_ms = clock_ms
        self._store: Store | None = None
        self._taken: dict[_Unit, _Taken] = {}
        self._tried_ms: dict[_Unit, int] = {}

    def judge(self) -> FleetJudgement:
        """Say what is to be said now, with what the newest closer looks found.

        Raises:
            StoreError: the store cannot answer.
        """
        now_ms = self._clock_ms()
        judged = judge_fleet(self._open(), self._settings, now_ms=now_ms)
        self._forget({(one.service, one.ep_group) for one in judged.findings})
        return add_looks(judged, ((key, one.look) for key, one in self._taken.items()), self._ages(now_ms))

    def look_closer(self) -> LookKind | None:
        """Take the look that is most overdue, of the groups of the newest judgement; None where none is due.

        Raises:
            StoreError: the store cannot answer; other looks come first then.
        """
        now_ms = self._clock_ms()
        unit = max(self._tried_ms, key=lambda one: self._overdue(one, now_ms), default=None)
        if unit is None or self._overdue(unit, now_ms) < 1:
            return None
        self._tried_ms[unit] = now_ms
        service, ep_group, kind = unit
        self._taken[unit] = _Taken(now_ms, take_look(self._open(), kind, service, ep_group, self._settings))
        return kind

    def close(self) -> None:
        """Let go of the store."""
        if self._store is not None:
            self._store.close()

    def _open(self) -> Store:
        if self._store is None:
            self._store = open_store(self._dsn)
        return self._store

    def _overdue(self, unit: _Unit, now_ms: int) -> float:
        """Time since it was last tried over its beat."""
        beat_ms = self._settings.fleet_page_look_seconds * _BEATS.get(unit[2], 1) * _MS
        return (now_ms - self._tried_ms[unit]) / beat_ms

    def _forget(self, groups: set[tuple[str, str]]) -> None:
        """Look at the groups that are there from now on, and say nothing of what can be seen no more."""
        never = -(10**15)
        self._tried_ms = {
            (*group, kind): self._tried_ms.get((*group, kind), never)
            for group in sorted(groups)
            for kind in LookKind
        }
        longest_ms = self._settings.fleet_page_forget_seconds * _MS
        self._taken = {
            unit: one
            for unit, one in self._taken.items()
            if unit in self._tried_ms and self._tried_ms[unit] - one.at_ms <= longest_ms
        }

    def _ages(self, now_ms: int) -> tuple[LookAge, ...]:
        oldest: dict[LookKind, int] = {}
        for (_, _, kind), one in self._taken.items():
            oldest[kind] = min(oldest.get(kind, one.at_ms), one.at_ms)
        return tuple(LookAge(kind, (now_ms - at_ms) / _MS) for kind, at_ms in sorted(oldest.items()))


def add_looks(
    judged: FleetJudgement, looks: Iterable[tuple[_Unit, Look]], ages: tuple[LookAge, ...] = ()
) -> FleetJudgement:
    """Add to a judgement what closer looks found."""
    of_unit = sorted(looks, key=lambda one: one[0])
    found = [look for _, look in of_unit]
    return replace(
        judged,
        awaited=tuple(one for look in found for one in look.awaited),
        pool_ends=tuple(one for look in found for one in look.pool_ends),
        covers=tuple(one for look in found for one in look.covers),
        replans=tuple(one for look in found for one in look.replans),
        findings=(*judged.findings, *_counts(of_unit)),
        look_ages=ages,
    )


def _counts(of_unit: Iterable[tuple[_Unit, Look]]) -> Iterator[FindingCount]:
    for (service, ep_group, _), look in of_unit:
        for kind, number in look.findings.items():
            yield FindingCount(service, ep_group, kind, number)
