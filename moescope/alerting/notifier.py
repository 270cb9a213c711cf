"""From what evaluations bring to those who are told, by way of the state file: first kept, then told."""

from __future__ import annotations

from collections.abc import Sequence

from moescope.alerting.alertmanager import RESEND_SECONDS, AlertmanagerTarget
from moescope.alerting.observation import LabelSet
from moescope.alerting.post import check_url
from moescope.alerting.rule_keeper import Outcome, Tracked
from moescope.alerting.sender import Sender
from moescope.alerting.state_file import StateFile
from moescope.alerting.target import News, Target
from moescope.alerting.webhook import WebhookTarget
from moescope.schemas.settings import Settings

_RESENDS_THAT_MAY_FAIL = 4
"""An alert holds for so many resends or evaluations without another word, as Prometheus has it."""


class Notifier:
    """Keeps and tells. Safe to use from several threads.

    Args:
        state: where it is kept.
        targets: who is told.
    """

    def __init__(self, state: StateFile, targets: Sequence[Target]) -> None:
        self.state = state
        self.senders = [Sender(target, state) for target in targets]
        for target in targets:
            target.restore(state.waiting(target.name))

    def start(self) -> None:
        """Begin to tell."""
        for sender in self.senders:
            sender.start()

    def stop(self, grace_seconds: float) -> None:
        """Stop; what was not told is in the state file."""
        for sender in self.senders:
            sender.stop(grace_seconds)

    def take(
        self,
        rule: str,
        tracked: dict[LabelSet, Tracked],
        outcome: Outcome,
        interval_seconds: float,
        now: float,
    ) -> None:
        """Write down what an evaluation brought, then have it told."""
        news = News(
            outcome.firing,
            outcome.started,
            outcome.ended,
            _RESENDS_THAT_MAY_FAIL * max(interval_seconds, RESEND_SECONDS),
        )
        outgoing = [message for sender in self.senders for message in sender.target.prepare(news, now)]
        events = [{"at": event.at, "body": event.to_dict()} for event in outcome.events]
        self.state.save(rule, tracked, events, outgoing)
        for sender in self.senders:
            sender.target.take_in(news, now)
            sender.wake()


def open_targets(settings: Settings) -> list[Target]:
    """Those that the settings name.

    Raises:
        SettingError: an address that is none.
    """
    source = f"{settings.dashboard_url.rstrip('/')}/alerts"
    urls = [url.strip() for url in settings.alertmanager_url.split(",") if url.strip()]
    targets: list[Target] = [
        AlertmanagerTarget(check_url(url, "MOESCOPE_ALERTMANAGER_URL"), source) for url in dict.fromkeys(urls)
    ]
    if settings.alert_webhook_url:
        url = check_url(settings.alert_webhook_url, "MOESCOPE_ALERT_WEBHOOK_URL")
        targets.append(WebhookTarget(url, source))
    return targets
