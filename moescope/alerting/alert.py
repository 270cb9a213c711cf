"""Alerts as people and other programs see them, and what happened to them."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moescope.alerting.alert_state import State
from moescope.alerting.humanize import plain

TextMap = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert that is pending, firing or without data, or has just ended. Times are Unix seconds.

    Attributes:
        labels: all of them, the name among them.
        annotations: as of its last active row.
        state: what it is.
        is_firing: whether people are told of it.
        active_at: since when its condition holds.
        fired_at: since when it fires; None before.
        value: of its last active row.
        ended_at: when it stopped firing; None while it fires.
    """

    labels: TextMap
    annotations: TextMap
    state: State
    is_firing: bool
    active_at: float | None
    fired_at: float | None
    value: float
    ended_at: float | None = None

    @property
    def fingerprint(self) -> str:
        """What tells it from every other alert, as short text."""
        text = "\n".join(f"{name}={value}" for name, value in sorted(self.labels.items()))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Event:
    """An alert changed its state."""

    at: float
    labels: TextMap
    annotations: TextMap
    before: State
    after: State
    value: float
    why: str = field(default="")

    def to_dict(self) -> dict[str, Any]:
        """As ``/api/v1/history`` and ``--json`` say it."""
        return {
            "at": rfc3339(self.at),
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "from": self.before.value,
            "to": self.after.value,
            "value": plain(self.value),
            **({"reason": self.why} if self.why else {}),
        }


def rfc3339(seconds: float) -> str:
    """A Unix time as Prometheus and Alertmanager write it, in UTC."""
    moment = dt.datetime.fromtimestamp(seconds, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
