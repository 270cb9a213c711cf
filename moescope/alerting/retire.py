"""Alerts whose rule is gone from the files: they end, and whoever was told of them is told that."""

from __future__ import annotations

from collections.abc import Mapping

from moescope.alerting.alert import Event
from moescope.alerting.alert_state import State
from moescope.alerting.observation import LabelSet
from moescope.alerting.rule_keeper import Outcome, Tracked, as_alert


def retire(tracked: Mapping[LabelSet, Tracked], at: float) -> Outcome:
    """End all alerts of a rule that is no more."""
    known = [one for _, one in sorted(tracked.items())]
    events = tuple(
        Event(
            *(at, one.labels, one.annotations, one.series.state, State.INACTIVE, one.series.value),
            why="the rule is gone",
        )
        for one in known
        if one.series.state is not State.INACTIVE
    )
    return Outcome(events, ended=tuple(as_alert(one, ended_at=at) for one in known if one.series.is_firing))
