"""Refusals of SQL in ClickHouse's own words and codes."""

from __future__ import annotations

from typing import Final

from moescope.schemas.errors import QueryError

# Codes, by ClickHouse's names.
BAD_ARGUMENTS: Final = 36
NOT_IMPLEMENTED: Final = 48
UNKNOWN_SETTING: Final = 115
READONLY: Final = 164
SETTING_CONSTRAINT_VIOLATION: Final = 452
AUTHENTICATION_FAILED: Final = 516

_NAMES: Final = {
    BAD_ARGUMENTS: "BAD_ARGUMENTS",
    NOT_IMPLEMENTED: "NOT_IMPLEMENTED",
    UNKNOWN_SETTING: "UNKNOWN_SETTING",
    READONLY: "READONLY",
    SETTING_CONSTRAINT_VIOLATION: "SETTING_CONSTRAINT_VIOLATION",
    AUTHENTICATION_FAILED: "AUTHENTICATION_FAILED",
}


def refusal(code: int, text: str) -> QueryError:
    """Return an error of the endpoint itself, worded as the engine words its own."""
    name = _NAMES[code]
    return QueryError(f"Code: {code}. DB::Exception: {text} ({name})", code=code, name=name)


def read_only_refusal(why: str = "") -> QueryError:
    """Return the engine's refusal of a write, for what its own read-only mode lets pass."""
    reason = f": {why}" if why else "."
    return refusal(READONLY, f"default: Cannot execute query in readonly mode{reason}")
