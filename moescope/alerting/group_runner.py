"""One thread per group: its rules one after another, at the times of its interval."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from moescope.alerting.datasource import Asks
from moescope.alerting.notifier import Notifier
from moescope.alerting.rule import RuleGroup
from moescope.alerting.rule_keeper import RuleKeeper
from moescope.alerting.schedule import following_slot, missed_slots, slot_of
from moescope.schemas.settings import Settings

_LOG: Final = logging.getLogger(__name__)


class GroupRunner:
    """Evaluates a group until it is stopped. A slow group delays no other.

    Attributes:
        keepers: its rules, in order.
        interval: seconds between evaluations.
        evaluations: rounds that were made.
        missed: rounds that were due and not made, since the one before took too long.
        last_seconds: how long the last round took.
        last_at: its time, Unix seconds; None before the first.
    """

    def __init__(
        self,
        group: RuleGroup,
        settings: Settings,
        store: Asks,
        notifier: Notifier,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.group = group
        self.keepers = [RuleKeeper(group, rule, settings) for rule in group.rules]
        self.interval = group.interval_seconds or settings.alert_interval_seconds
        self.delay = settings.alert_delay_seconds if group.delay_seconds is None else group.delay_seconds
        self.evaluations = 0
        self.missed = 0
        self.last_seconds = 0.0
        self.last_at: float | None = None
        self._store = store
        self._notifier = notifier
        self._clock = clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"moescope-alerts-{group.name}", daemon=True)

    def start(self) -> None:
        """Begin, with the round that was due last."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Have it end after the rule under way."""
        self._stop.set()

    def join(self, seconds: float) -> None:
        """Wait for its end."""
        if self._thread.is_alive():
            self._thread.join(seconds)

    def evaluate(self, at: float) -> None:
        """One round."""
        started = time.perf_counter()
        for keeper in self.keepers:
            if self._stop.is_set():
                return
            was_failing = bool(keeper.last_error)
            outcome = keeper.evaluate(self._store, at, self.delay)
            if outcome.is_failure and not was_failing:
                _LOG.warning("%s: %s", self.group.where(keeper.rule), keeper.last_error)
            self._notifier.take(keeper.rule.key, dict(keeper.tracked), outcome, self.interval, self._clock())
        self.evaluations += 1
        self.last_at = at
        self.last_seconds = time.perf_counter() - started

    def _run(self) -> None:
        slot = slot_of(self._clock(), self.interval)
        while not self._stop.is_set():
            try:
                self.evaluate(slot)
            except Exception:
                _LOG.exception("group %s: an evaluation failed in moescope itself", self.group.name)
            now = self._clock()
            self.missed += missed_slots(slot, now, self.interval)
            slot = following_slot(slot, now, self.interval)
            self._stop.wait(max(0.0, slot - now))
