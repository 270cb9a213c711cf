"""Progress on stderr: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import logging
import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

logger = logging.getLogger("moescope")

_SECONDS_BETWEEN_LINES: Final = 30.0


class WindowProgress:
    """Shows how many windows were emitted, or whatever else ``unit`` says; use as a context."""

    def __init__(self, unit: str = "windows") -> None:
        self._unit = unit
        console = Console(stderr=True)
        self._is_terminal = console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TimeRemainingColumn(),
            console=console,
            disable=not self._is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._last_line = -_SECONDS_BETWEEN_LINES

    def __enter__(self) -> Self:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the bar as it stands."""
        self._bar.stop()

    def show(self, what: str, done: int, total: int | None) -> None:
        """Say that ``done`` of ``total`` are done."""
        if self._is_terminal:
            if what not in self._tasks:
                self._tasks[what] = self._bar.add_task(what, total=total)
            self._bar.update(self._tasks[what], completed=done)
            return
        now = time.monotonic()
        if done == total or now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            logger.info("%s: %d%s %s", what, done, f" of {total}" if total else "", self._unit)
