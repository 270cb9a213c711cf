"""The life of an alert: inactive → pending → firing → inactive, and what missing data make of it. Pure.

The clock is that of the evaluations. What no evaluation saw does not pass: an evaluation that failed changes
nothing, and a restart is a gap like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from moescope.alerting.observation import LabelSet, Observation, Sample
from moescope.alerting.rule import NoData

GAP_SECONDS: Final = 3600.0
"""A pending alert that nobody looked at for so long begins anew: it is not known to have been active."""
FORGET_SECONDS: Final[Mapping[NoData, float]] = {NoData.KEEP: 3600.0, NoData.ALERT: 86400.0}
"""So long without data a series is remembered: what was taken down must not fire for ever."""


class State(StrEnum):
    """What an alert is."""

    INACTIVE = "inactive"
    PENDING = "pending"
    FIRING = "firing"
    NO_DATA = "no_data"


@dataclass(frozen=True, slots=True)
class Timing:
    """What a rule says about time and missing data."""

    for_seconds: float = 0.0
    keep_firing_seconds: float = 0.0
    no_data: NoData = NoData.KEEP


@dataclass(frozen=True, slots=True)
class Series:
    """One alert that is not inactive, or is remembered because it would be missed. Times are Unix seconds.

    Attributes:
        active_at: when it became active; None while it is fine and only remembered.
        fired_at: when it began to fire; None before.
        last_active: when it was last seen active.
        last_seen: when it was last seen at all.
        fine_since: since when it is fine although it still fires.
        is_missing: whether the last evaluation should have seen it and did not.
        value: of its last active row.
        info: of its last active row.
    """

    active_at: float | None
    fired_at: float | None
    last_active: float
    last_seen: float
    fine_since: float | None = None
    is_missing: bool = False
    value: float = 0.0
    info: LabelSet = ()

    @property
    def is_firing(self) -> bool:
        """Whether people are told of it."""
        return self.fired_at is not None

    @property
    def state(self) -> State:
        """In one word. What fires because it is missing is firing."""
        if self.is_missing and not (self.is_firing and self.last_active > self.last_seen):
            return State.NO_DATA
        if self.is_firing:
            return State.FIRING
        return State.INACTIVE if self.active_at is None else State.PENDING


@dataclass(frozen=True, slots=True)
class Change:
    """What became of an alert at an evaluation."""

    labels: LabelSet
    before: State
    after: State


def advance(
    known: Mapping[LabelSet, Series], seen: Observation, at: float, timing: Timing
) -> tuple[dict[LabelSet, Series], list[Change]]:
    """The next state of all alerts of a rule.

    Args:
        known: after the evaluation before.
        seen: what this one saw.
        at: its time, Unix seconds, later than that of the one before.
        timing: of the rule.

    Returns:
        What is known now, and what changed, ordered by labels. Neither argument is changed.
    """
    series: dict[LabelSet, Series] = {}
    changes: list[Change] = []
    for labels in sorted({*known, *seen.samples}):
        old = known.get(labels)
        new = _next(old, labels, seen, at, timing)
        if new is not None:
            series[labels] = new
        before = State.INACTIVE if old is None else old.state
        after = State.INACTIVE if new is None else new.state
        if before != after:
            changes.append(Change(labels, before, after))
    return series, changes


def firing(series: Mapping[LabelSet, Series]) -> Iterator[tuple[LabelSet, Series]]:
    """Those that people are told of, without data or not."""
    return ((labels, one) for labels, one in series.items() if one.is_firing)


def rule_state(series: Mapping[LabelSet, Series]) -> State:
    """The state of a rule: that of its worst alert."""
    states = {one.state for one in series.values()}
    order = (State.FIRING, State.NO_DATA, State.PENDING)
    return next((state for state in order if state in states), State.INACTIVE)


def _next(
    old: Series | None, labels: LabelSet, seen: Observation, at: float, timing: Timing
) -> Series | None:
    sample = seen.samples.get(labels)
    if sample is not None and sample.is_active:
        return _when_active(old, sample, at, timing)
    if sample is not None or seen.has_looked_at(labels) or timing.no_data is NoData.OK:
        return _when_fine(old, at, timing, is_seen=sample is not None, says=seen.says_what_it_sees)
    return None if old is None else _when_missing(old, at, timing)


def _when_active(old: Series | None, sample: Sample, at: float, timing: Timing) -> Series:
    since = at
    if (
        old is not None
        and old.active_at is not None
        and (old.is_firing or at - old.last_active <= GAP_SECONDS)
    ):
        since = old.active_at
    fired_at = old.fired_at if old is not None else None
    if fired_at is None and at - since >= timing.for_seconds:
        fired_at = at
    return Series(since, fired_at, at, at, value=sample.value, info=sample.info)


def _when_fine(old: Series | None, at: float, timing: Timing, *, is_seen: bool, says: bool) -> Series | None:
    if old is not None and old.is_firing:
        since = at if old.fine_since is None else old.fine_since
        if at - since < timing.keep_firing_seconds:
            return replace(old, fine_since=since, last_seen=at, is_missing=False)
    # Only a rule that alerts on missing data must know what it has seen.
    if timing.no_data is NoData.ALERT and says and (is_seen or old is not None):
        return Series(None, None, at, at)
    return None


def _when_missing(old: Series, at: float, timing: Timing) -> Series | None:
    if at - old.last_seen > FORGET_SECONDS[timing.no_data]:
        return None
    if timing.no_data is NoData.KEEP:
        return replace(old, is_missing=True)
    since = at if old.active_at is None else old.active_at
    fired_at = at if old.fired_at is None and at - since >= timing.for_seconds else old.fired_at
    return replace(old, active_at=since, fired_at=fired_at, last_active=at, fine_since=None, is_missing=True)
