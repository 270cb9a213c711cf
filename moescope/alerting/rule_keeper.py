"""One rule and what it knows: asks the store, moves its alerts on, and puts their texts in."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from moescope.alerting.alert import Alert, Event
from moescope.alerting.alert_state import Change, Series, State, Timing, advance, rule_state
from moescope.alerting.datasource import Asks, observe
from moescope.alerting.observation import LabelSet
from moescope.alerting.rule import AlertRule, RuleGroup
from moescope.alerting.template import Facts
from moescope.schemas.errors import MoescopeError, StoreError
from moescope.schemas.settings import Settings

ALERT_NAME: Final = "alertname"


@dataclass(frozen=True, slots=True)
class Tracked:
    """An alert that is known: its state, and the texts that it got when it became active."""

    series: Series
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an evaluation brought.

    Attributes:
        events: what changed.
        firing: all alerts that fire now, without data or not.
        started: those that began to.
        ended: those that stopped.
        is_failure: the evaluation failed, and nothing changed.
    """

    events: tuple[Event, ...] = ()
    firing: tuple[Alert, ...] = ()
    started: tuple[Alert, ...] = ()
    ended: tuple[Alert, ...] = ()
    is_failure: bool = False


class RuleKeeper:
    """A rule, its alerts and how its last evaluation went. One thread evaluates; others read.

    Attributes:
        tracked: by the labels of their rows; replaced, never changed in place.
        last_error: of the last evaluation, empty if it went well.
        failures: evaluations that failed.
        last_at: Unix seconds of the last evaluation; None before the first.
        last_seconds: how long it took.
    """

    def __init__(self, group: RuleGroup, rule: AlertRule, settings: Settings) -> None:
        self.group = group
        self.rule = rule
        self.tracked: Mapping[LabelSet, Tracked] = {}
        self.last_error = ""
        self.failures = 0
        self.last_at: float | None = None
        self.last_seconds = 0.0
        self._settings = settings
        self._timing = Timing(rule.for_seconds, rule.keep_firing_seconds, rule.no_data)

    @property
    def state(self) -> State:
        """That of its worst alert."""
        return rule_state({labels: one.series for labels, one in self.tracked.items()})

    def evaluate(self, store: Asks, at: float, delay: float) -> Outcome:
        """Look at the store as of ``delay`` seconds before ``at`` and move the alerts on to ``at``.

        An evaluation that fails is kept and counted, and changes no alert.
        """
        started = time.perf_counter()
        try:
            seen = observe(store, self.rule, self._settings, at - delay, self.group.limit)
            known = {labels: one.series for labels, one in self.tracked.items()}
            series, changes = advance(known, seen, at, self._timing)
            tracked = {labels: self._tracked(labels, one, at) for labels, one in series.items()}
            _check_identities(tracked)
        except Exception as error:
            # Whatever it is, the rules after this one must be evaluated too.
            is_ours = isinstance(error, MoescopeError)
            self.last_error = str(error) if is_ours else f"{type(error).__name__}: {error}"
            self.failures += 1
            return Outcome(firing=self._firing(), is_failure=True)
        else:
            self.last_error = ""
            return self._take(tracked, changes, at)
        finally:
            self.last_at = at
            self.last_seconds = time.perf_counter() - started

    def alerts(self) -> list[Alert]:
        """All that are not inactive, in the order of their labels."""
        return [
            as_alert(one) for _, one in sorted(self.tracked.items()) if one.series.state is not State.INACTIVE
        ]

    def _take(self, tracked: Mapping[LabelSet, Tracked], changes: list[Change], at: float) -> Outcome:
        before = self.tracked
        self.tracked = tracked
        events = tuple(self._event(change, before, at) for change in changes)
        ended = [
            as_alert(old, ended_at=at)
            for labels, old in before.items()
            if old.series.is_firing and not (labels in tracked and tracked[labels].series.is_firing)
        ]
        firing = self._firing()
        started = tuple(alert for alert in firing if alert.fired_at == at)
        return Outcome(events, firing, started, tuple(ended))

    def _firing(self) -> tuple[Alert, ...]:
        return tuple(as_alert(one) for _, one in sorted(self.tracked.items()) if one.series.is_firing)

    def _event(self, change: Change, before: Mapping[LabelSet, Tracked], at: float) -> Event:
        one = self.tracked.get(change.labels) or before[change.labels]
        return Event(at, one.labels, one.annotations, change.before, change.after, one.series.value)

    def _tracked(self, labels: LabelSet, series: Series, at: float) -> Tracked:
        old = self.tracked.get(labels)
        # What fell silent or is fine says what it said last.
        if old is not None and (series.last_seen != at or series.last_active != at):
            return replace(old, series=series)
        facts = Facts(dict(labels), dict(series.info), series.value, self._settings.dashboard_url.rstrip("/"))
        annotations = {name: text.render(facts) for name, text in self.rule.annotations.items()}
        if old is not None and old.labels:
            return Tracked(series, old.labels, annotations)
        named = {name: text.render(facts) for name, text in self.rule.labels.items()}
        everything = {**dict(labels), **named, ALERT_NAME: self.rule.name}
        return Tracked(series, {name: text for name, text in everything.items() if text}, annotations)


def as_alert(one: Tracked, *, ended_at: float | None = None) -> Alert:
    """A known alert as others see it."""
    series = one.series
    return Alert(
        labels=one.labels,
        annotations=one.annotations,
        state=State.INACTIVE if ended_at is not None else series.state,
        is_firing=series.is_firing and ended_at is None,
        active_at=series.active_at,
        fired_at=series.fired_at,
        value=series.value,
        ended_at=ended_at,
    )


def _check_identities(tracked: Mapping[LabelSet, Tracked]) -> None:
    """Labels of the rule may hide those of the rows; two alerts must not become one."""
    seen = {frozenset(one.labels.items()) for one in tracked.values()}
    if len(seen) != len(tracked):
        raise StoreError(
            "two rows become the same alert: a label of the rule hides one that tells them apart"
        )
