"""What must outlive the process: known alerts, what happened to them, and what was not yet delivered.

One SQLite file, and each evaluation of a rule one transaction: a crash at any moment leaves the state before
or after it. The file belongs to one process at a time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from moescope.alerting.alert_state import Series
from moescope.alerting.observation import LabelSet
from moescope.alerting.rule_keeper import Tracked
from moescope.schemas.errors import AlertStateError

VERSION: Final = 1
MOST_EVENTS: Final = 10_000
_APPLICATION: Final = 0x6D6F6561  # "moea"
_MOST_WAITING: Final = 10_000
_LOG: Final = logging.getLogger(__name__)
_ENV: Final = "MOESCOPE_ALERT_STATE_FILE or --state-file"
_TABLES: Final = (
    "CREATE TABLE tracked (rule TEXT, labels TEXT, body TEXT, PRIMARY KEY (rule, labels))",
    "CREATE TABLE event (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL, body TEXT)",
    "CREATE INDEX event_at ON event (at)",
    "CREATE TABLE outgoing (target TEXT, key TEXT, body TEXT, PRIMARY KEY (target, key))",
)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Something that a target must still get. ``body`` is JSON; None takes back what waits under the key."""

    target: str
    key: str
    body: str | None


class StateFile:
    """The file. Safe to use from several threads.

    A write that fails (a full disk) is counted and repeated with the next one; meanwhile the memory is ahead.

    Attributes:
        failures: writes that failed.

    Raises:
        AlertStateError: it belongs to another process, is of a newer version, or cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failures = 0
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, tuple[Any, ...]]] = []
        self._connection = _open(path)

    def load(self) -> dict[str, dict[LabelSet, Tracked]]:
        """Known alerts by the key of their rule."""
        known: dict[str, dict[LabelSet, Tracked]] = {}
        with self._lock:
            rows = self._connection.execute("SELECT rule, labels, body FROM tracked").fetchall()
        for rule, labels, body in rows:
            known.setdefault(rule, {})[_pairs(json.loads(labels))] = _read_tracked(json.loads(body))
        return known

    def save(
        self,
        rule: str,
        tracked: Mapping[LabelSet, Tracked],
        events: Sequence[Mapping[str, Any]] = (),
        outgoing: Sequence[Outgoing] = (),
    ) -> None:
        """Write what an evaluation of a rule brought, all of it or nothing.

        Args:
            rule: its key.
            tracked: all its known alerts.
            events: as JSON values, each with ``at`` in Unix seconds beside its ``body``.
            outgoing: what targets must get.
        """
        statements: list[tuple[str, tuple[Any, ...]]] = [("DELETE FROM tracked WHERE rule = ?", (rule,))]
        statements += [
            ("INSERT INTO tracked VALUES (?, ?, ?)", (rule, json.dumps(labels), _write_tracked(one)))
            for labels, one in tracked.items()
        ]
        statements += [
            ("INSERT INTO event (at, body) VALUES (?, ?)", (event["at"], json.dumps(event["body"])))
            for event in events
        ]
        if events:
            statements.append(
                ("DELETE FROM event WHERE number <= (SELECT max(number) FROM event) - ?", (MOST_EVENTS,))
            )
        for message in outgoing:
            statements.append(_outgoing(message))
        self._write(statements)

    def delivered(self, target: str, keys: Collection[str]) -> None:
        """Forget what a target has got."""
        self._write([("DELETE FROM outgoing WHERE target = ? AND key = ?", (target, key)) for key in keys])

    def waiting(self, target: str) -> list[tuple[str, Any]]:
        """What a target must still get, in the order in which it was written: key and JSON value."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT key, body FROM outgoing WHERE target = ? ORDER BY rowid", (target,)
            ).fetchall()
        return [(key, json.loads(body)) for key, body in rows]

    def forget_targets_but(self, targets: Collection[str]) -> int:
        """Drop what waits for targets that are no longer configured; return how much that was."""
        marks = ", ".join("?" for _ in targets)
        with self._lock, self._connection:
            # The marks are question marks, nothing else.
            gone = self._connection.execute(
                f"DELETE FROM outgoing WHERE target NOT IN ({marks})", tuple(targets)
            )
            return gone.rowcount

    def events(self, start: float, end: float, limit: int) -> list[Any]:
        """The newest events of a span of Unix seconds, both included, in the order in which they happened."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT body FROM event WHERE at >= ? AND at <= ? ORDER BY number DESC LIMIT ?",
                (start, end, limit),
            ).fetchall()
        return [json.loads(body) for (body,) in reversed(rows)]

    def close(self) -> None:
        """Write what waits, and let another process have the file."""
        self._write([])
        with self._lock:
            self._connection.close()

    def _write(self, statements: list[tuple[str, tuple[Any, ...]]]) -> None:
        with self._lock:
            self._waiting += statements
            try:
                with self._connection:
                    for sql, values in self._waiting:
                        self._connection.execute(sql, values)
            except sqlite3.Error as error:
                self.failures += 1
                if len(self._waiting) > _MOST_WAITING * 10:
                    raise AlertStateError(
                        f"{self.path} cannot be written for too long: {error}; make room or name another "
                        f"file with {_ENV}"
                    ) from error
                _LOG.error("the state of alerts was not written to %s (%s); trying again", self.path, error)
            else:
                self._waiting.clear()


def _open(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _connect(path)
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise AlertStateError(
                f"{path} belongs to another `moescope alerts run`; stop that one, or name another file "
                f"with {_ENV}"
            ) from None
        raise AlertStateError(f"{path} cannot be opened: {error}; name another file with {_ENV}") from None
    except OSError as error:
        raise AlertStateError(
            f"{path} cannot be made: {error.strerror}; name another file with {_ENV}"
        ) from None
    except sqlite3.DatabaseError as error:
        aside = path.with_name(f"{path.name}.damaged-{int(time.time())}")
        path.rename(aside)
        _LOG.error(
            "%s is damaged (%s). It lies in %s now, and a new file was begun: what was pending begins anew, "
            "and what fires is sent as new",
            path,
            error,
            aside,
        )
        return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    with contextlib.ExitStack() as stack:
        connection = sqlite3.connect(path, timeout=1.0, check_same_thread=False)
        stack.callback(connection.close)
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN EXCLUSIVE")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if version > VERSION or (version and application != _APPLICATION):
            whose = "a newer moescope" if application == _APPLICATION else "another program"
            raise AlertStateError(
                f"{path} was written by {whose} (version {version}, this one reads {VERSION}); "
                f"upgrade, or name another file with {_ENV}"
            )
        if not version:
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.commit()
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        stack.pop_all()
        return connection
    raise AssertionError  # the stack swallows nothing


def _outgoing(message: Outgoing) -> tuple[str, tuple[Any, ...]]:
    if message.body is None:
        return "DELETE FROM outgoing WHERE target = ? AND key = ?", (message.target, message.key)
    return "INSERT OR REPLACE INTO outgoing VALUES (?, ?, ?)", (message.target, message.key, message.body)


def _write_tracked(one: Tracked) -> str:
    return json.dumps(
        {"series": asdict(one.series), "labels": dict(one.labels), "annotations": dict(one.annotations)}
    )


def _read_tracked(body: Mapping[str, Any]) -> Tracked:
    series = {**body["series"], "info": _pairs(body["series"]["info"])}
    return Tracked(Series(**series), body["labels"], body["annotations"])


def _pairs(values: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> LabelSet:
    return tuple((name, text) for name, text in values)
