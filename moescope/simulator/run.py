"""Run a fleet to its end, however it comes, and write down the truth."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from moescope.schemas.errors import StoreUnavailableError
from moescope.simulator.fleet import Fleet

_LAST_FLUSH_TIMES: Final = 6
"""The end may come while the endpoint restarts: it gets several times the usual time-out."""


def run_fleet(
    fleet: Fleet,
    *,
    backfill_seconds: float,
    backfill_interval_seconds: float,
    windows: int | None,
    interval_seconds: float,
    truth_file: Path | None,
    progress: Callable[[str, int, int | None], None],
    speed: float = 1.0,
) -> None:
    """Emit the backfill, then ``windows`` windows in real time (for ever if None).

    With ``windows`` 0 the run ends with the backfill. ``speed`` is of the windows after it.
    ``progress`` is called with what is being done, the windows done and how many there will be. Ctrl-C and
    SIGTERM end the run after the window under way; the truth is written either way.

    Raises:
        StoreUnavailableError: the end came and the endpoint had not acknowledged everything.
    """
    past = round(backfill_seconds / backfill_interval_seconds)
    with _stop_when_asked() as stop:
        if past:
            for done, _ in enumerate(fleet.backfill(backfill_seconds, backfill_interval_seconds), 1):
                progress("backfill", done, past)
                if stop.is_set():
                    break
            if windows != 0:
                for done, _ in enumerate(fleet.catch_up(interval_seconds, stop), 1):
                    progress("catching up", done, None)
        for done, _ in enumerate(fleet.run(windows, interval_seconds, stop, speed=speed), 1):
            progress("live", done, windows)
        is_complete = fleet.close(_LAST_FLUSH_TIMES * fleet.settings.flush_timeout_seconds)
    if truth_file is not None:
        fleet.write_truth(truth_file)
    if not is_complete:
        raise StoreUnavailableError(
            "the endpoint did not acknowledge the last windows; the truth holds more than the store. "
            "Check --endpoint, or start one with: moescope serve"
        )


@contextlib.contextmanager
def _stop_when_asked() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C or SIGTERM into an event; a second one ends the process as usual."""
    stop = threading.Event()
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}

    def ask(signum: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signum, before[signal.Signals(signum)])

    for signum in before:
        signal.signal(signum, ask)
    try:
        yield stop
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
