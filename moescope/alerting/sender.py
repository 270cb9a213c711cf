"""One thread per target: what is due is sent, and sent again until it was taken."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from moescope.alerting.post import NotTakenError, RefusedError, post_json
from moescope.alerting.state_file import StateFile
from moescope.alerting.target import Batch, Target

MOST_PER_REQUEST: Final = 64
_FIRST_WAIT_SECONDS: Final = 1.0
_LONGEST_WAIT_SECONDS: Final = 60.0
_LOG: Final = logging.getLogger(__name__)


class Sender:
    """Sends to one target, and keeps the state file in step with what arrived.

    Args:
        target: who is told.
        state: what must not be lost is there until it arrived.
        post: how; a test may listen here.
        clock: Unix seconds.
    """

    def __init__(
        self,
        target: Target,
        state: StateFile,
        *,
        post: Callable[[str, Any], None] = post_json,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.target = target
        self.last_error = ""
        self._state = state
        self._post = post
        self._clock = clock
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="moescope-alerts-send", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def wake(self) -> None:
        """There is news."""
        self._wake.set()

    def stop(self, grace_seconds: float) -> None:
        """Send what is due if that goes at once; what stays is in the state file."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(grace_seconds)

    def send_due(self) -> bool:
        """Send what is due now, in as many requests as that takes.

        Returns:
            False if a request was not taken, and is to be repeated.
        """
        while batch := self.target.next_batch(self._clock(), MOST_PER_REQUEST):
            try:
                self._post(self.target.url, batch.body)
            except NotTakenError as error:
                self._not_taken(error)
                return False
            except RefusedError as error:
                if not self._refused(batch, error):
                    return False
            else:
                self._taken(batch)
        return True

    def wait_seconds(self) -> float:
        """How long to wait after so many failures in a row: twice as long each time, and not all at once."""
        if not self._failures:
            return 0.0
        doublings = min(self._failures - 1, 10)
        longest = min(_FIRST_WAIT_SECONDS * float(2**doublings), _LONGEST_WAIT_SECONDS)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads requests, protects nothing

    def _run(self) -> None:
        while True:
            is_last = self._stop.is_set()
            try:
                self.send_due()
            except Exception:
                self._failures += 1
                _LOG.exception("telling %s failed in moescope itself", self.target.name)
            if is_last:
                return
            self._wait()

    def _wait(self) -> None:
        if self._failures:
            # News does not hurry somebody who takes nothing.
            self._stop.wait(self.wait_seconds())
            return
        self._wake.wait(self.target.due_in(self._clock()))
        self._wake.clear()

    def _taken(self, batch: Batch) -> None:
        if self._failures:
            _LOG.info("%s takes alerts again", self.target.name)
        self._failures = 0
        self.last_error = ""
        if keys := self.target.succeeded(batch, self._clock()):
            self._state.delivered(self.target.name, keys)

    def _not_taken(self, error: NotTakenError) -> None:
        self.target.counts.failed_requests += 1
        self._failures += 1
        self.last_error = str(error)
        if self._failures == 1:
            _LOG.warning("%s takes no alerts (%s); trying again until it does", self.target.name, error)

    def _refused(self, batch: Batch, error: RefusedError) -> bool:
        """Find the culprit: tell one at a time. Return False if one was not taken for now."""
        self.target.counts.failed_requests += 1
        for one in self.target.singly(batch):
            try:
                if len(batch.keys) > 1:
                    self._post(self.target.url, one.body)
                    self._taken(one)
                    continue
            except NotTakenError as later:
                self._not_taken(later)
                return False
            except RefusedError as again:
                error = again
            self.last_error = str(error)
            _LOG.error("%s refuses an alert for good (%s): %s", self.target.name, error, one.body)
            if keys := self.target.gave_up(one):
                self._state.delivered(self.target.name, keys)
        return True
