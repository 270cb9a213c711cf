"""Why a query brought nothing back, in words that say what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from moescope.analysis import words
from moescope.schemas.errors import MoescopeError, QueryError
from moescope.schemas.settings import Settings
from moescope.schemas.sql_refusals import READONLY, SETTING_CONSTRAINT_VIOLATION

SYNTAX_ERROR: Final = 62
UNKNOWN_IDENTIFIER: Final = 47
UNKNOWN_TABLE: Final = 60
TIMEOUT_EXCEEDED: Final = 159
MEMORY_LIMIT_EXCEEDED: Final = 241
QUERY_WAS_CANCELLED: Final = 394

_HEAD: Final = re.compile(r"^Code: \d+\. DB::Exception: ")
_TAIL: Final = re.compile(r"\s*(?:\(version [^)]*\)|\([A-Z][A-Z0-9_]+\))\.?\s*$")
_POSITION: Final = re.compile(r"failed at position (\d+)")
_EXPECTED: Final = re.compile(r"\.? Expected one of: .*", re.DOTALL)
_SCOPE: Final = re.compile(r"\.? In scope .*?(?=\. Maybe you meant|$)", re.DOTALL)
_IDENTIFIER: Final = re.compile(r"(?:identifier|table|function)[^`']*[`']([^`']+)[`']")


class ProblemKind(StrEnum):
    """What stopped a query."""

    WRITE = "write"
    SYNTAX = "syntax"
    UNKNOWN_NAME = "unknown name"
    TOO_LONG = "too long"
    TOO_MUCH_MEMORY = "too much memory"
    CANCELLED = "cancelled"
    UNAVAILABLE = "unavailable"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the query's text; line and column from 1, ``text`` is that line."""

    line: int
    column: int
    text: str


@dataclass(frozen=True, slots=True)
class SqlProblem:
    """Why a query brought nothing back.

    Attributes:
        title: a few words.
        message: the store's own, without its decoration and what it would have expected instead.
        detail: all that the store said.
        advice: what to do about it; may be empty.
        code, name: ClickHouse's, None where it did not speak.
        place: where the store stopped reading, None where it does not say.
    """

    kind: ProblemKind
    title: str
    message: str
    detail: str
    advice: str
    code: int | None
    name: str | None
    place: Place | None


_KINDS: Final = {
    READONLY: ProblemKind.WRITE,
    SYNTAX_ERROR: ProblemKind.SYNTAX,
    UNKNOWN_IDENTIFIER: ProblemKind.UNKNOWN_NAME,
    UNKNOWN_TABLE: ProblemKind.UNKNOWN_NAME,
    TIMEOUT_EXCEEDED: ProblemKind.TOO_LONG,
    MEMORY_LIMIT_EXCEEDED: ProblemKind.TOO_MUCH_MEMORY,
    QUERY_WAS_CANCELLED: ProblemKind.CANCELLED,
}
_TITLES: Final = {
    ProblemKind.WRITE: "This page only reads",
    ProblemKind.SYNTAX: "The query cannot be read",
    ProblemKind.UNKNOWN_NAME: "No such name",
    ProblemKind.TOO_LONG: "The query took too long",
    ProblemKind.TOO_MUCH_MEMORY: "The query needed too much memory",
    ProblemKind.CANCELLED: "Cancelled",
    ProblemKind.UNAVAILABLE: "The store does not answer",
    ProblemKind.OTHER: "The store refused the query",
}
_ADVICE: Final = {
    ProblemKind.WRITE: "Nothing was changed. Data comes in through OTLP, `moescope migrate` makes tables. "
    "Functions that reach outside the database (files, addresses, other servers) and settings that guard the "
    "store are refused as well.",
    ProblemKind.UNKNOWN_NAME: "The views and their columns are listed below.",
    ProblemKind.CANCELLED: "The store was told to stop.",
}


def explain(error: MoescopeError, sql: str, settings: Settings) -> SqlProblem:
    """Say what stopped a query.

    Args:
        error: what the store said, or why it said nothing.
        sql: the text that was sent.
        settings: whose limits the query ran under.
    """
    if not isinstance(error, QueryError):
        kind = ProblemKind.UNAVAILABLE if error.retryable else ProblemKind.OTHER
        return SqlProblem(kind, _TITLES[kind], str(error), str(error), "", None, None, None)
    kind = _KINDS.get(error.code or 0, ProblemKind.OTHER)
    detail = _plain(str(error))
    return SqlProblem(
        kind,
        _TITLES[kind],
        _SCOPE.sub("", _EXPECTED.sub("", detail)),
        detail,
        _advice(kind, settings),
        error.code,
        error.name,
        _place(detail, sql),
    )


def cancelled() -> SqlProblem:
    """The query was stopped by who asked."""
    kind = ProblemKind.CANCELLED
    message = "The query was stopped before it ended."
    return SqlProblem(kind, _TITLES[kind], message, message, _ADVICE[kind], None, None, None)


def is_about_settings(error: QueryError) -> bool:
    """Whether the store refused a setting that came with a query, rather than the query."""
    return is_read_only_already(error) or error.code == SETTING_CONSTRAINT_VIOLATION


def is_read_only_already(error: QueryError) -> bool:
    """Whether a setting was refused because the user may only read, whatever comes with a query."""
    return error.code == READONLY and "Cannot modify" in str(error) and "readonly mode" in str(error)


def _advice(kind: ProblemKind, settings: Settings) -> str:
    if kind is ProblemKind.TOO_LONG:
        return (
            f"The limit is {words.seconds(settings.sql_max_seconds)} (`MOESCOPE_SQL_MAX_SECONDS`). Look at "
            "less time (`WHERE time > now() - INTERVAL 1 HOUR`), or at one service, phase or layer."
        )
    if kind is ProblemKind.TOO_MUCH_MEMORY:
        return (
            f"The limit is {words.binary_bytes(settings.sql_max_memory_bytes)} "
            "(`MOESCOPE_SQL_MAX_MEMORY_BYTES`). Look at less time, or group by fewer columns."
        )
    return _ADVICE.get(kind, "")


def _plain(text: str) -> str:
    message = _HEAD.sub("", text.strip())
    while (shorter := _TAIL.sub("", message)) != message:
        message = shorter
    return message.removeprefix("default: ")


def _place(message: str, sql: str) -> Place | None:
    position = _POSITION.search(message)
    if position:
        # ClickHouse counts bytes, from 1.
        before = sql.encode()[: int(position[1]) - 1].decode("utf-8", "ignore")
    else:
        named = _IDENTIFIER.search(message)
        start = sql.find(named[1]) if named else -1
        if start < 0:
            return None
        before = sql[:start]
    line = before.count("\n")
    lines = sql.split("\n")
    return Place(line + 1, len(before) - (before.rfind("\n") + 1) + 1, lines[line])
