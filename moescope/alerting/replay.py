"""``moescope alerts test --replay``: what rules would have done over stored history."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from moescope.alerting.alert import Event, rfc3339
from moescope.alerting.alert_state import State
from moescope.alerting.datasource import Asks
from moescope.alerting.humanize import humanize_duration, plain
from moescope.alerting.rule import RuleGroup
from moescope.alerting.rule_keeper import ALERT_NAME, RuleKeeper
from moescope.alerting.schedule import slot_of
from moescope.schemas.settings import Settings


@dataclass(frozen=True, slots=True)
class Episode:
    """One time that an alert would have fired. Times are Unix seconds.

    Attributes:
        labels: all of them.
        fired_at: when people would have been told.
        ended_at: when they would have been told that it ended; None if it still fires at the end.
        value: at the beginning.
        summary: its annotation of that name at the beginning.
    """

    labels: dict[str, str]
    fired_at: float
    ended_at: float | None
    value: float
    summary: str

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "labels": self.labels,
            "firedAt": rfc3339(self.fired_at),
            "endedAt": None if self.ended_at is None else rfc3339(self.ended_at),
            "value": plain(self.value),
            "summary": self.summary,
        }


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What would have happened between two times, Unix seconds.

    Attributes:
        episodes: in the order in which they began.
        events: every change of state.
        evaluations: of rules that were made.
        failures: those that failed.
        errors: what the last failing evaluation of each rule said.
    """

    start: float
    end: float
    episodes: tuple[Episode, ...]
    events: tuple[Event, ...]
    evaluations: int
    failures: int
    errors: tuple[str, ...]

    @property
    def has_problem(self) -> bool:
        """Whether an evaluation failed: then nobody knows what would have fired."""
        return bool(self.failures)

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "start": rfc3339(self.start),
            "end": rfc3339(self.end),
            "evaluations": self.evaluations,
            "failures": self.failures,
            "errors": list(self.errors),
            "episodes": [episode.to_dict() for episode in self.episodes],
            "events": [event.to_dict() for event in self.events],
        }

    def to_text(self) -> str:
        """For a terminal."""
        lines = [line for episode in self.episodes for line in _lines(episode, self.end)]
        span = f"{_clock(self.start)} to {_clock(self.end)} UTC"
        told = (
            f"{len(self.episodes)} alert(s) would have fired" if self.episodes else "nothing would have fired"
        )
        lines.append(f"{span}: {told}, in {self.evaluations} evaluations; {self.failures} failed")
        return "\n".join([*lines, *(f"error: {error}" for error in self.errors)])


def replay(
    groups: Sequence[RuleGroup],
    settings: Settings,
    store: Asks,
    span: tuple[float, float],
    *,
    progress: Callable[[str, int, int | None], None],
    step: float | None = None,
) -> ReplayReport:
    """Evaluate rules at every time at which they would have been, from a state that knows nothing.

    Args:
        groups: of rules.
        settings: bound by name; their delay is kept.
        store: with the history.
        span: from when to when, Unix seconds.
        progress: called with what is done, how many, and of how many.
        step: seconds between evaluations; that of the groups if None.
    """
    start, end = span
    plans = [(group, _times(group, settings, span, step)) for group in groups]
    total = sum(len(group.rules) * len(times) for group, times in plans)
    done = failures = 0
    events: list[Event] = []
    errors: list[str] = []
    for group, times in plans:
        delay = settings.alert_delay_seconds if group.delay_seconds is None else group.delay_seconds
        keepers = [RuleKeeper(group, rule, settings) for rule in group.rules]
        for at in times:
            for keeper in keepers:
                events += keeper.evaluate(store, at, delay).events
                if keeper.last_error and keeper.failures == 1:
                    errors.append(f"{group.where(keeper.rule)}: {keeper.last_error}")
                done += 1
                progress("evaluations", done, total)
        failures += sum(keeper.failures for keeper in keepers)
    events.sort(key=lambda event: event.at)
    return ReplayReport(start, end, tuple(_episodes(events)), tuple(events), done, failures, tuple(errors))


def _times(
    group: RuleGroup, settings: Settings, span: tuple[float, float], step: float | None
) -> list[float]:
    interval = step or group.interval_seconds or settings.alert_interval_seconds
    first = slot_of(span[0], interval) + interval
    return [first + number * interval for number in range(int((span[1] - first) // interval) + 1)]


def _episodes(events: Sequence[Event]) -> list[Episode]:
    found: list[Episode] = []
    open_at: dict[frozenset[tuple[str, str]], int] = {}
    for event in events:
        key = frozenset(event.labels.items())
        # Without data it still fires, until it is forgotten or fine.
        if event.after is State.FIRING and key not in open_at:
            open_at[key] = len(found)
            found.append(
                Episode(dict(event.labels), event.at, None, event.value, event.annotations.get("summary", ""))
            )
        elif event.after in {State.INACTIVE, State.PENDING} and key in open_at:
            place = open_at.pop(key)
            found[place] = replace(found[place], ended_at=event.at)
    return found


def _lines(episode: Episode, end: float) -> list[str]:
    labels = ", ".join(
        f'{name}="{text}"' for name, text in sorted(episode.labels.items()) if name != ALERT_NAME
    )
    lasted = humanize_duration(round((episode.ended_at or end) - episode.fired_at))
    until = "still fires" if episode.ended_at is None else f"until {_clock(episode.ended_at)}"
    head = f"{_clock(episode.fired_at)}  {episode.labels[ALERT_NAME]}  {{{labels}}}  {until}, {lasted}"
    return [head, f"{' ' * 21}{episode.summary}"] if episode.summary else [head]


def _clock(seconds: float) -> str:
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d %H:%M:%S}"
