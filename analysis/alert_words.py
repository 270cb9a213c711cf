"""What the Alerts page says, in words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from moescope.analysis import words
from moescope.analysis.alert_records import Alerts, AlertState, RuleState, ShownAlert, Silence

_STATE: Final = {
    AlertState.FIRING: "Firing",
    AlertState.NO_DATA: "Without data",
    AlertState.PENDING: "Pending",
    AlertState.INACTIVE: "Quiet",
}


def headline(alerts: Alerts) -> str:
    """``2 alerts fire, 1 without data``, or that nothing fires."""
    firing, blind = alerts.count(AlertState.FIRING), alerts.count(AlertState.NO_DATA)
    parts = [f"{words.count(firing, 'alert')} {'fires' if firing == 1 else 'fire'}" if firing else ""]
    parts.append(f"{words.count(blind, 'alert')} without data" if blind else "")
    return ", ".join(part for part in parts if part) or "Nothing fires"


def rest(alerts: Alerts) -> str:
    """What else there is: pending and silenced alerts, and how many rules look."""
    rules, pending, quiet = len(alerts.rules), alerts.count(AlertState.PENDING), len(alerts.untold)
    newest = max((rule.last_evaluation for rule in alerts.rules if rule.last_evaluation), default=None)
    parts = [
        f"{words.count(pending, 'alert')} pending" if pending else "",
        f"{words.count(quiet, 'alert')} silenced or inhibited" if quiet else "",
        f"{words.count(rules, 'rule')}{f', last looked at {age(newest)} ago' if newest else ''}",
    ]
    return "; ".join(part for part in parts if part) + "."


def state_words(alert: ShownAlert) -> str:
    """``Firing for 12 min``."""
    word = _STATE[alert.state]
    return f"{word} for {age(alert.since)}" if alert.since else word


def value_words(alert: ShownAlert) -> str:
    """The value with three digits, as it is where it is no number, empty where there is none."""
    try:
        return words.compact(float(alert.value))
    except (ValueError, OverflowError):
        return alert.value


def quiet_words(alert: ShownAlert) -> str:
    """Why nobody is told of an alert."""
    parts = [_silence(one) for one in alert.silences]
    if alert.is_inhibited:
        parts.append("Another alert says it already (inhibited).")
    return " ".join(parts)


def rule_words(rule: RuleState) -> str:
    """State of a rule, one word."""
    return "cannot be evaluated" if rule.error else _STATE[rule.state].lower()


def age(moment: datetime) -> str:
    """How long ago."""
    return words.duration(max(0.0, (datetime.now(UTC) - moment).total_seconds()))


def _silence(silence: Silence) -> str:
    until = f" until {silence.until.astimezone(UTC):%d %b %H:%M} UTC" if silence.until else ""
    by = f" by {silence.created_by}" if silence.created_by else ""
    why = f": {silence.comment}" if silence.comment else ""
    return f"Silenced{by}{until}{why}."
