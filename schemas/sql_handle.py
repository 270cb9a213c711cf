"""A handle on the embedded engine: one chdb connection, whose errors are ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from moescope.schemas.errors import QueryError

_CODE: Final = re.compile(r"Code: (\d+)\. ")
_NESTED: Final = re.compile(
    r"Code: \d+\. DB::Exception: (Code: .*)(?: \(version [^)]*\))\.? \([A-Z0-9_]+\)", re.DOTALL
)
"""The embedded client wraps some errors in a second one of the same code."""

_NAME: Final = re.compile(r"\(([A-Z][A-Z0-9_]+)\)\s*(?:\(version [^)]*\))?\.?\s*$")


class Handle:
    """One chdb connection whose errors are :class:`QueryError` with ClickHouse's code and name."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def query(self, sql: str, fmt: str = "TabSeparated", parameters: Mapping[str, str] | None = None) -> Any:
        """Run one statement and return chdb's result.

        Raises:
            QueryError: the engine refused it.
        """
        try:
            return self._connection.query(sql, fmt, params=dict(parameters or {}))
        except RuntimeError as error:
            raise query_error(str(error)) from None

    def insert_file(self, statement: str, fmt: str, path: Path, settings: str = "") -> int:
        """Insert the rows of a file and return how many were read from it.

        chdb can also be fed from memory (``send_insert``), but then an exception that a materialized view
        throws at the end of the insert is swallowed (chdb 26.9): half stored, and reported as stored.

        Args:
            statement: ``INSERT INTO … (…)``, without a ``FORMAT`` clause.
            fmt: name of the file's format.
            path: the file.
            settings: a ``SETTINGS`` list, without the word.

        Raises:
            QueryError: the engine refused them; some tables may have them.
        """
        clause = f" SETTINGS {settings}" if settings else ""
        result = self.query(f"{statement} FROM INFILE {quote_text(str(path))}{clause} FORMAT {fmt}")
        return int(result.rows_read())

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()


def quote_text(text: str) -> str:
    """Return a string literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quote_name(name: str) -> str:
    """Return a quoted identifier of SQL."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def query_error(text: str) -> QueryError:
    """Turn chdb's text into an error with ClickHouse's code and name."""
    start = text.find("Code: ")
    message = text[start:].strip() if start > 0 else text.strip()
    while nested := _NESTED.fullmatch(message):
        message = nested[1]
    code, name = _CODE.search(message), _NAME.search(message)
    return QueryError(message, code=int(code[1]) if code else None, name=name[1] if name else None)
