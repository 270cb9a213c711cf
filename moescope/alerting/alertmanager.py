"""What one Alertmanager must know: alerts that fire, again and again, and those that ended.

As Prometheus tells it (API v2): a firing alert carries an end that lies some resends ahead, so that it ends
by itself if nobody speaks of it any more; an ended one is repeated for a while.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from moescope.alerting.alert import Alert, rfc3339
from moescope.alerting.post import without_password
from moescope.alerting.state_file import Outgoing
from moescope.alerting.target import Batch, Counts, News

RESEND_SECONDS: Final = 60.0
RESOLVED_SECONDS: Final = 900.0
"""So long an ended alert is repeated, as Prometheus does: Alertmanager keeps alerts in memory only."""
MOST_ALERTS: Final = 20_000


@dataclass(slots=True)
class _Entry:
    body: dict[str, Any]
    valid_seconds: float
    ended_at: float | None = None
    sent_at: float | None = None


class AlertmanagerTarget:
    """One Alertmanager of the list.

    Args:
        url: its base; ``/api/v2/alerts`` is added.
        source: address of the dashboard, where an alert without a link of its own leads.
    """

    def __init__(self, url: str, source: str) -> None:
        self.name = f"alertmanager:{without_password(url)}"
        self.url = f"{url.rstrip('/')}/api/v2/alerts"
        self.counts = Counts()
        self._source = source
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()

    def prepare(self, news: News, now: float) -> list[Outgoing]:
        """See :class:`moescope.alerting.target.Target`. What fires is known anyway; what ended is not."""
        ended = [
            Outgoing(self.name, alert.fingerprint, json.dumps({"ended_at": now, "alert": self._body(alert)}))
            for alert in news.ended
        ]
        with self._lock:
            again = [
                alert.fingerprint
                for alert in news.started
                if (entry := self._entries.get(alert.fingerprint)) and entry.ended_at is not None
            ]
        return [*ended, *(Outgoing(self.name, key, None) for key in again)]

    def take_in(self, news: News, now: float) -> None:
        """See :class:`moescope.alerting.target.Target`."""
        with self._lock:
            for alert in news.firing:
                old = self._entries.get(alert.fingerprint)
                sent_at = old.sent_at if old is not None and old.ended_at is None else None
                self._entries[alert.fingerprint] = _Entry(
                    self._body(alert), news.valid_seconds, None, sent_at
                )
            for alert in news.ended:
                self._entries[alert.fingerprint] = _Entry(self._body(alert), 0.0, now)
            self._stay_bounded()

    def restore(self, waiting: Sequence[tuple[str, Any]]) -> None:
        """See :class:`moescope.alerting.target.Target`."""
        with self._lock:
            for key, value in waiting:
                self._entries.setdefault(key, _Entry(value["alert"], 0.0, value["ended_at"]))

    def due_in(self, now: float) -> float | None:
        """See :class:`moescope.alerting.target.Target`."""
        with self._lock:
            if not self._entries:
                return None
            return max(0.0, min(_due_at(entry, now) for entry in self._entries.values()) - now)

    def next_batch(self, now: float, most: int) -> Batch | None:
        """See :class:`moescope.alerting.target.Target`."""
        with self._lock:
            due = [(key, entry) for key, entry in self._entries.items() if _due_at(entry, now) <= now][:most]
            body = [_with_end(entry, now) for _, entry in due]
        if not due:
            return None
        return Batch(body, tuple(key for key, _ in due), tuple(_mark(entry) for _, entry in due))

    def singly(self, batch: Batch) -> list[Batch]:
        """See :class:`moescope.alerting.target.Target`."""
        parts = zip(batch.body, batch.keys, batch.marks, strict=True)
        return [Batch([body], (key,), (mark,)) for body, key, mark in parts]

    def succeeded(self, batch: Batch, now: float) -> list[str]:
        """See :class:`moescope.alerting.target.Target`."""
        self.counts.sent += len(batch.keys)
        done = []
        with self._lock:
            for key, mark in zip(batch.keys, batch.marks, strict=True):
                entry = self._entries.get(key)
                if entry is None or _mark(entry) != mark:
                    continue
                entry.sent_at = now
                if entry.ended_at is not None and now - entry.ended_at >= RESOLVED_SECONDS:
                    del self._entries[key]
                    done.append(key)
        return done

    def gave_up(self, batch: Batch) -> list[str]:
        """See :class:`moescope.alerting.target.Target`."""
        self.counts.refused += len(batch.keys)
        with self._lock:
            for key in batch.keys:
                self._entries.pop(key, None)
        return list(batch.keys)

    def waiting(self) -> int:
        """See :class:`moescope.alerting.target.Target`."""
        with self._lock:
            return sum(entry.sent_at is None for entry in self._entries.values())

    def _body(self, alert: Alert) -> dict[str, Any]:
        body: dict[str, Any] = {
            "labels": dict(alert.labels),
            "annotations": {name: text for name, text in alert.annotations.items() if text},
            "startsAt": rfc3339(alert.fired_at or 0.0),
            "generatorURL": alert.annotations.get("dashboard_url") or self._source,
        }
        if alert.ended_at is not None:
            body["endsAt"] = rfc3339(alert.ended_at)
        return body

    def _stay_bounded(self) -> None:
        """Never more than so many: the oldest that ended go first, and each is counted."""
        extra = len(self._entries) - MOST_ALERTS
        if extra <= 0:
            return
        order = sorted(self._entries, key=lambda key: self._entries[key].ended_at or float("inf"))
        for key in order[:extra]:
            del self._entries[key]
        self.counts.dropped += extra


def _due_at(entry: _Entry, now: float) -> float:
    return now if entry.sent_at is None else entry.sent_at + RESEND_SECONDS


def _mark(entry: _Entry) -> str:
    return f"{entry.body['startsAt']} {entry.ended_at}"


def _with_end(entry: _Entry, now: float) -> dict[str, Any]:
    if entry.ended_at is not None:
        return entry.body
    return {**entry.body, "endsAt": rfc3339(now + entry.valid_seconds)}
