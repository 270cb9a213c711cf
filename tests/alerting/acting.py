"""A store that answers what a test says, and somebody who is told and remembers it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from moescope.alerting.alertmanager import AlertmanagerTarget
from moescope.alerting.group_runner import GroupRunner
from moescope.alerting.notifier import Notifier
from moescope.alerting.post import NotTakenError, RefusedError
from moescope.alerting.rule_file import read_rule_files
from moescope.alerting.run import _take_up
from moescope.alerting.sender import Sender
from moescope.alerting.state_file import StateFile
from moescope.alerting.webhook import WebhookTarget
from moescope.schemas.settings import Settings

URL = "http://alertmanager:9093"
HOOK = "http://hook/"


class ActedStore:
    """Answers every question with the rows of the moment, or fails with the error of the moment."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self.asked: list[dict[str, Any]] = []

    def ask(self, sql, params) -> pa.Table:
        self.asked.append(dict(params))
        if self.error is not None:
            raise self.error
        schema = pa.schema(
            [
                *(pa.field(name, pa.string()) for name in ("service", "expert")),
                *(pa.field("value", pa.float64()), pa.field("is_active", pa.uint8())),
            ]
        )
        return pa.Table.from_pylist(self.rows, schema=schema)

    def say(self, *experts: str, fine: tuple[str, ...] = ()) -> None:
        """These experts are hot, those are seen and fine, and nothing else was looked at."""
        self.rows = [
            {"service": "k3", "expert": expert, "value": 3.0, "is_active": int(expert in experts)}
            for expert in (*experts, *fine)
        ]


@dataclass
class Listener:
    """Whoever is posted to. It can be away, and it refuses alerts whose expert is ``refused``."""

    got: list[dict[str, Any]] = field(default_factory=list)
    is_away: bool = False
    refused: str = ""
    requests: int = 0

    def post(self, url: str, body: Any) -> None:
        self.requests += 1
        if self.is_away:
            raise NotTakenError("connection refused")
        alerts = body if isinstance(body, list) else body["alerts"]
        if any(alert["labels"].get("expert") == self.refused for alert in alerts):
            raise RefusedError("400 Bad Request: invalid label")
        self.got += alerts

    def told(self) -> list[tuple[str, str]]:
        """Expert and status of what came, in order."""
        return [(alert["labels"]["expert"], alert.get("status", "")) for alert in self.got]


class Night:
    """One `moescope alerts run` after another over the same state file, under a test's clock."""

    def __init__(self, folder: Path, rules: Path) -> None:
        self.store = ActedStore()
        self.manager = Listener()
        self.hook = Listener()
        self.now = 1_800_000_000.0
        self._folder = folder
        self._rules = rules
        self.start()

    def start(self) -> None:
        self.state = StateFile(self._folder / "alerts.sqlite")
        source = "http://localhost:8501/alerts"
        targets = [AlertmanagerTarget(URL, source), WebhookTarget(HOOK, source)]
        self.notifier = Notifier(self.state, targets)
        listeners: list[Callable[[str, Any], None]] = [self.manager.post, self.hook.post]
        self.notifier.senders = [
            Sender(target, self.state, post=post, clock=lambda: self.now)
            for target, post in zip(targets, listeners, strict=True)
        ]
        settings = Settings(alert_interval_seconds=30, alert_delay_seconds=13)
        self.runners = [
            GroupRunner(group, settings, self.store, self.notifier, clock=lambda: self.now)
            for group in read_rule_files([self._rules])
        ]
        _take_up(self.state, self.notifier, self.runners)

    def restart(self, *, seconds: float = 0.0, crash: bool = False) -> None:
        """End, in order or by losing whatever is only in memory, and come back after some time."""
        if crash:
            self.state._connection.close()
        else:
            self.state.close()
        self.now += seconds
        self.start()

    def evaluate(self, *, send: bool = True) -> None:
        """Half a minute later, one round; and whoever is told is told."""
        self.now += 30
        for runner in self.runners:
            runner.evaluate(self.now)
        if send:
            self.send()

    def send(self) -> list[bool]:
        return [sender.send_due() for sender in self.notifier.senders]

    def states(self) -> dict[str, str]:
        """State by expert."""
        keepers = [keeper for runner in self.runners for keeper in runner.keepers]
        return {alert.labels["expert"]: alert.state.value for keeper in keepers for alert in keeper.alerts()}
