"""Run what a person typed: read-only, within the settings' limits, beside the page, and to be cancelled."""

from __future__ import annotations

import threading
import time
from typing import Final

from moescope.analysis.sql_answer import SqlAnswer, read_answer
from moescope.analysis.sql_problem import SqlProblem, cancelled, explain
from moescope.analysis.sql_transport import (
    EmbeddedTransport,
    HttpTransport,
    Transport,
    row_limit,
)
from moescope.analysis.store import is_embedded
from moescope.schemas.errors import MoescopeError
from moescope.schemas.settings import Settings

_LOOK_SECONDS: Final = 0.2
"""Between two looks whether to cancel, and two attempts to: what has not begun yet is not found yet."""

ABANDONED_SECONDS: Final = 20.0
"""Who has not asked for the outcome for so long has left, and the query makes room for others."""


class RunningQuery:
    """A query on a thread of its own. Begun when it is made.

    Attributes:
        sql: what was asked.
    """

    def __init__(self, sql: str, settings: Settings) -> None:
        self.sql = sql
        self._settings = settings
        is_local = is_embedded(settings.dsn)
        self._transport: Transport = EmbeddedTransport(settings) if is_local else HttpTransport(settings)
        self._outcome: SqlAnswer | SqlProblem | None = None
        self._is_done = threading.Event()
        self._is_cancelled = threading.Event()
        self._started = time.monotonic()
        self._ended: float | None = None
        self._asked = self._started
        for target in (self._run, self._watch):
            threading.Thread(target=target, name="sql-page", daemon=True).start()

    @property
    def query_id(self) -> str:
        """Under which the store knows the query."""
        return self._transport.query_id

    @property
    def outcome(self) -> SqlAnswer | SqlProblem | None:
        """The answer, or why there is none; None while it runs."""
        self._asked = time.monotonic()
        return self._outcome if self._is_done.is_set() else None

    @property
    def seconds(self) -> float:
        """Since it was begun, to its end or to now; the way there and back is in it."""
        return (self._ended or time.monotonic()) - self._started

    def wait(self, seconds: float) -> SqlAnswer | SqlProblem | None:
        """Wait for the outcome, so long at most."""
        self._is_done.wait(seconds)
        return self.outcome

    def cancel(self) -> None:
        """Have the store stop it; the outcome says so."""
        self._is_cancelled.set()

    def _watch(self) -> None:
        while not self._is_done.wait(_LOOK_SECONDS):
            if time.monotonic() - self._asked > ABANDONED_SECONDS:
                self._is_cancelled.set()
            if self._is_cancelled.is_set():
                self._try_to_cancel()

    def _try_to_cancel(self) -> None:
        try:
            self._transport.cancel()
        except MoescopeError:
            # The store is away: then the query has ended too, or its limit of time will end it.
            return

    def _run(self) -> None:
        try:
            outcome = self._ask()
        except MoescopeError as error:
            outcome = cancelled() if self._is_cancelled.is_set() else explain(error, self.sql, self._settings)
        except Exception as error:
            outcome = explain(MoescopeError(f"{type(error).__name__}: {error}"), self.sql, self._settings)
        self._outcome, self._ended = outcome, time.monotonic()
        self._is_done.set()

    def _ask(self) -> SqlAnswer | SqlProblem:
        raw = self._transport.run(self.sql)
        return read_answer(
            raw.body,
            raw.answered_format,
            raw.summary,
            query_id=self.query_id,
            max_rows=row_limit(self._settings),
        )
