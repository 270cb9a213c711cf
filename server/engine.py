"""The embedded ClickHouse engine (chdb): opened once per process, used through short-lived handles.

Facts that shape this module, all measured on chdb 26.9: one engine path per process and one process per
path; forking after it was opened hangs the child; a handle costs 0.2 ms, carries its own ``SET`` and ``USE``,
and serves one call at a time; nothing but the process's time zone decides ``now()``'s, hence
``session_timezone`` on every handle.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import clickhouse_connect
from chdb.state.sqlitelike import Connection

from moescope.schemas import migrate
from moescope.schemas.errors import DataDirectoryError, QueryError
from moescope.schemas.settings import Settings
from moescope.server.deduplication_log import repair_deduplication_logs

MARK_CACHE_BYTES: Final = 256 * 2**20
_CODE: Final = re.compile(r"Code: (\d+)\. ")
_NESTED: Final = re.compile(
    r"Code: \d+\. DB::Exception: (Code: .*)(?: \(version [^)]*\))\.? \([A-Z0-9_]+\)", re.DOTALL
)
"""The embedded client wraps some errors in a second one of the same code."""

_NAME: Final = re.compile(r"\(([A-Z][A-Z0-9_]+)\)\s*(?:\(version [^)]*\))?\.?\s*$")


class Engine:
    """The open engine of this process.

    Args:
        folder: where it keeps its data; the caller owns it (:mod:`moescope.server.data_directory`).
        settings: memory limit, database name and retention.

    Raises:
        DataDirectoryError: the engine cannot open the folder.
        MigrationError: the folder was migrated by a newer moescope.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.database = settings.database
        self.repaired_entries = repair_deduplication_logs(folder)
        self._options: dict[str, int | str] = {
            "max_server_memory_usage": settings.engine_memory_bytes,
            "mark_cache_size": MARK_CACHE_BYTES,
            "session_timezone": "UTC",
        }
        # chdb compares paths as text, and clickhouse_connect resolves them first.
        folder = folder.resolve()
        self._connection_string = f"{folder}?{urlencode(self._options)}"
        try:
            # Held open for the life of the server: the engine shuts down with its last handle.
            self._anchor = Connection(self._connection_string)
        except RuntimeError as error:
            raise DataDirectoryError(
                f"the embedded engine cannot open {folder}: {error}; another process may have it open "
                "(chdb:// readers count), or this process another one"
            ) from None
        try:
            self.version = self.scalar("SELECT version()")
            with self.client(folder) as client:
                self.applied_migrations = migrate.apply(client, settings)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def client(self, folder: Path) -> Iterator[Any]:
        """Lend a ``clickhouse_connect`` client on this engine."""
        client = clickhouse_connect.get_client(dsn=f"chdb://{folder}", chdb_options=self._options)
        try:
            yield client
        finally:
            client.close()

    @contextmanager
    def handle(self) -> Iterator[Handle]:
        """Lend a fresh handle: nobody else's ``SET`` or ``USE`` is on it."""
        handle = Handle(Connection(self._connection_string))
        try:
            yield handle
        finally:
            handle.close()

    def scalar(self, sql: str) -> str:
        """Return the first line of an answer as text."""
        with self.handle() as handle:
            data: bytes = handle.query(sql, "TabSeparatedRaw").bytes()
        return data.decode().partition("\n")[0]

    def close(self) -> None:
        """Shut the engine down; every handle must have been given back."""
        self._anchor.close()


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
