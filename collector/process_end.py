"""Flush when the process ends: normally, as a multiprocessing child, or by SIGTERM.

``atexit`` alone misses two of the three: multiprocessing children leave through ``os._exit`` after running
their own finalizers, and the default action of SIGTERM runs nothing at all.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing.util
import os
import signal
import threading
from types import FrameType
from typing import Protocol


class Closable(Protocol):
    """Anything that can be closed, more than once."""

    def close(self) -> object:
        """Flush and stop."""


logger = logging.getLogger("moescope")

# Held until closed: the last window of a recorder that its engine let go of counts too.
_closables: list[Closable] = []
_installed_in_pid = 0


def call_at_process_end(closable: Closable) -> None:
    """Close ``closable`` when this process ends, however that happens."""
    global _installed_in_pid  # noqa: PLW0603 - signal handlers and exit hooks exist once per process
    if closable not in _closables:
        _closables.append(closable)
    if _installed_in_pid != os.getpid():
        # Again in a forked child: multiprocessing throws the parent's finalizers away.
        _installed_in_pid = os.getpid()
        _install()


def forget_at_process_end(closable: Closable) -> None:
    """Let go of ``closable``, which was closed."""
    if closable in _closables:
        _closables.remove(closable)


def _install() -> None:
    atexit.register(_close_all)
    multiprocessing.util.Finalize(None, _close_all, exitpriority=100)
    # Only where SIGTERM would end the process without a word: a handler that is there already stays, since
    # it ends through one of the other two.
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ):
        signal.signal(signal.SIGTERM, _close_and_die)


def _close_all() -> None:
    for closable in _closables.copy():  # closing takes it off the list
        try:
            closable.close()
        except Exception:
            # One recorder that fails must keep neither the others nor the process from ending.
            logger.exception("moescope: the last window could not be handed over")


def _close_and_die(signum: int, _frame: FrameType | None) -> None:
    try:
        _close_all()
    finally:
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)
