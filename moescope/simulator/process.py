"""One simulated process: the recorder, reporter and exporter that a real one has, and a clock of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from moescope.collector.process_recorder import ProcessRecorder
from moescope.simulator.truth import Ledger, Witness

_NS: Final = 1_000_000_000
_LAST_WORDS_SECONDS: Final = 5.0

_Recorder = TypeVar("_Recorder", bound=ProcessRecorder)
OpenRecorder = Callable[[str, Callable[[], int]], _Recorder]
"""Opens a recorder with an instance id and a clock."""


class SimulatedProcess(Generic[_Recorder]):
    """A process that can end, start again and have a wrong clock.

    Args:
        open_recorder: makes its recorder.
        now_ns: the simulated time.
        ledger: where what it reports is noted.

    Attributes:
        is_reporting: whether its windows leave it.
        is_fresh: whether nothing was reported since its start.
        skew_seconds: how far its clock is ahead.
    """

    def __init__(
        self, open_recorder: OpenRecorder[_Recorder], now_ns: Callable[[], int], ledger: Ledger
    ) -> None:
        self.skew_seconds = 0
        self.is_reporting = True
        self._open_recorder = open_recorder
        self._now_ns = now_ns
        self._ledger = ledger
        self.start()

    def start(self, instance: str | None = None) -> None:
        """Start, as somebody new or under another's instance id."""
        self.instance = instance or str(uuid.uuid4())
        self.recorder = self._open_recorder(self.instance, lambda: self._now_ns() + self.skew_seconds * _NS)
        self.meter = Witness(self.recorder, self._ledger)
        self.is_fresh = True

    def set_reporting(self, is_reporting: bool) -> None:
        """Fall silent, or come back as a new process."""
        if self.is_reporting and not is_reporting:
            self.recorder.close(_LAST_WORDS_SECONDS)
        elif is_reporting and not self.is_reporting:
            self.start()
        self.is_reporting = is_reporting

    def restart(self, instance: str | None = None) -> None:
        """End and start again."""
        self.recorder.close(_LAST_WORDS_SECONDS)
        self.start(instance)

    def flush(self, timeout_seconds: float) -> bool:
        """Close the window and hand it over."""
        self.is_fresh = False
        return self.recorder.flush(timeout_seconds)

    def close(self, timeout_seconds: float) -> bool:
        """Hand over what is left and end; True where there is nothing to hand over."""
        return self.recorder.close(timeout_seconds) if self.is_reporting else True
