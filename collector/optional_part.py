"""A part of the telemetry that may fail alone: the others go on, and so does serving."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("moescope")


class OptionalPart:
    """Runs what belongs to one part until it fails for the first time; that is logged, once.

    Args:
        loss: what is missing from then on, the rest of a sentence: ``passes are not timed any more``.
        give_up: called after the failure, to take off what the part has put on the engine.
    """

    def __init__(self, loss: str, give_up: Callable[[], None] | None = None) -> None:
        self._loss = loss
        self._give_up = give_up
        self.has_failed = False

    def attempt(self, action: Callable[..., object], *args: Any) -> None:
        """Do it, unless the part has failed before."""
        if self.has_failed:
            return
        try:
            action(*args)
        except Exception:
            self.has_failed = True
            logger.exception("moescope: %s; serving goes on", self._loss)
            self._clean_up()

    def _clean_up(self) -> None:
        try:
            if self._give_up is not None:
                self._give_up()
        except Exception:
            logger.debug("moescope: could not take the hook back", exc_info=True)
