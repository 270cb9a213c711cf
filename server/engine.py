"""The embedded ClickHouse engine (chdb): opened once per process, used through short-lived handles.

Facts that shape this module, all measured on chdb 26.9: one engine path per process and one process per
path; forking after it was opened hangs the child; a handle costs 0.2 ms, carries its own ``SET`` and ``USE``,
and serves one call at a time; nothing but the process's time zone decides ``now()``'s, hence
``session_timezone`` on every handle.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import clickhouse_connect
from chdb.state.sqlitelike import Connection

from moescope.schemas import migrate
from moescope.schemas.errors import DataDirectoryError
from moescope.schemas.settings import Settings
from moescope.schemas.sql_handle import Handle
from moescope.server.deduplication_log import repair_deduplication_logs

MARK_CACHE_BYTES: Final = 256 * 2**20


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
