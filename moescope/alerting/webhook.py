"""What a webhook gets: each change once, in order, in the JSON that Alertmanager's own webhooks have."""

from __future__ import annotations

import itertools
import json
import logging
import threading
from collections.abc import Sequence
from typing import Any, Final

from moescope.alerting.alert import Alert, rfc3339
from moescope.alerting.post import without_password
from moescope.alerting.state_file import Outgoing
from moescope.alerting.target import Batch, Counts, News

MOST_CHANGES: Final = 10_000
_LOG: Final = logging.getLogger(__name__)
_NO_END: Final = "0001-01-01T00:00:00Z"


class WebhookTarget:
    """One address that is posted to.

    A change is told at least once: if the answer was lost it is told again, with the same ``id``.

    Args:
        url: where to post.
        source: address of the dashboard.
    """

    def __init__(self, url: str, source: str) -> None:
        self.name = f"webhook:{without_password(url)}"
        self.url = url
        self.counts = Counts()
        self._source = source
        self._changes: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def prepare(self, news: News, now: float) -> list[Outgoing]:  # noqa: ARG002 - as every target
        """See :class:`moescope.alerting.target.Target`."""
        return [Outgoing(self.name, body["id"], json.dumps(body)) for body in self._bodies(news)]

    def take_in(self, news: News, now: float) -> None:  # noqa: ARG002 - as every target
        """See :class:`moescope.alerting.target.Target`."""
        self.restore([(body["id"], body) for body in self._bodies(news)])

    def restore(self, waiting: Sequence[tuple[str, Any]]) -> None:
        """See :class:`moescope.alerting.target.Target`."""
        with self._lock:
            self._changes.update(waiting)
            for key in list(self._changes)[: max(0, len(self._changes) - MOST_CHANGES)]:
                lost = self._changes.pop(key)
                self.counts.dropped += 1
                _LOG.error(
                    "%s takes nothing, and %d changes wait: this one is not told: %s",
                    self.name,
                    MOST_CHANGES,
                    lost,
                )

    def due_in(self, now: float) -> float | None:  # noqa: ARG002 - as every target
        """See :class:`moescope.alerting.target.Target`."""
        with self._lock:
            return 0.0 if self._changes else None

    def next_batch(self, now: float, most: int) -> Batch | None:  # noqa: ARG002 - as every target
        """See :class:`moescope.alerting.target.Target`."""
        with self._lock:
            chosen = list(itertools.islice(self._changes.items(), most))
        return (
            Batch(self._message([body for _, body in chosen]), tuple(key for key, _ in chosen))
            if chosen
            else None
        )

    def singly(self, batch: Batch) -> list[Batch]:
        """See :class:`moescope.alerting.target.Target`."""
        alerts = zip(batch.body["alerts"], batch.keys, strict=True)
        return [Batch(self._message([body]), (key,)) for body, key in alerts]

    def succeeded(self, batch: Batch, now: float) -> list[str]:  # noqa: ARG002 - as every target
        """See :class:`moescope.alerting.target.Target`."""
        self.counts.sent += len(batch.keys)
        return self._forget(batch)

    def gave_up(self, batch: Batch) -> list[str]:
        """See :class:`moescope.alerting.target.Target`."""
        self.counts.refused += len(batch.keys)
        return self._forget(batch)

    def waiting(self) -> int:
        """See :class:`moescope.alerting.target.Target`."""
        with self._lock:
            return len(self._changes)

    def _forget(self, batch: Batch) -> list[str]:
        with self._lock:
            for key in batch.keys:
                self._changes.pop(key, None)
        return list(batch.keys)

    def _bodies(self, news: News) -> list[dict[str, Any]]:
        return [self._body(alert) for alert in (*news.ended, *news.started)]

    def _body(self, alert: Alert) -> dict[str, Any]:
        has_ended = alert.ended_at is not None
        starts = rfc3339(alert.fired_at or 0.0)
        return {
            # Known from the alert alone: the same change has the same id, whoever writes it down.
            "id": f"{alert.fingerprint}-{starts}-{'resolved' if has_ended else 'firing'}",
            "status": "resolved" if has_ended else "firing",
            "labels": dict(alert.labels),
            "annotations": dict(alert.annotations),
            "startsAt": starts,
            "endsAt": _NO_END if alert.ended_at is None else rfc3339(alert.ended_at),
            "generatorURL": alert.annotations.get("dashboard_url") or self._source,
            "fingerprint": alert.fingerprint,
        }

    def _message(self, alerts: list[dict[str, Any]]) -> dict[str, Any]:
        is_firing = any(alert["status"] == "firing" for alert in alerts)
        common = set.intersection(*({*alert["labels"].items()} for alert in alerts))
        said = set.intersection(*({*alert["annotations"].items()} for alert in alerts))
        return {
            "version": "4",
            "groupKey": "moescope",
            "receiver": "moescope",
            "status": "firing" if is_firing else "resolved",
            "groupLabels": {},
            "commonLabels": dict(sorted(common)),
            "commonAnnotations": dict(sorted(said)),
            "externalURL": self._source,
            "truncatedAlerts": 0,
            "alerts": alerts,
        }
