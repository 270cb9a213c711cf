"""A migrated, empty store that is gone afterwards: what rules are checked and tested against."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any, Final

import clickhouse_connect

from moescope.analysis.store import Store, open_store
from moescope.schemas.errors import AlertRuleError
from moescope.schemas.settings import Settings
from moescope.server.app import Server

_MEMORY_BYTES: Final = 2 * 2**30
_FOR_EVER_DAYS: Final = 3650
_TABLES: Final = (
    "SELECT name FROM system.tables WHERE database = {database:String} AND engine LIKE '%MergeTree' "
    "AND total_rows > 0 AND name NOT LIKE '%migration%'"
)


class ScratchStore:
    """An embedded engine with its ports.

    Attributes:
        store: answers rules.
        otlp_endpoint: takes telemetry, as from an engine.
        database: where the tables are.
    """

    def __init__(self, dsn: str, otlp_endpoint: str, database: str) -> None:
        self.store: Store = open_store(dsn)
        self.otlp_endpoint = otlp_endpoint
        self.database = database
        self._client: Any = clickhouse_connect.get_client(dsn=dsn, autogenerate_session_id=False)

    def command(self, sql: str) -> None:
        """Run a statement that answers nothing."""
        self._client.command(sql)

    def insert(self, table: str, lines: str) -> None:
        """Insert rows, a JSON object a line.

        Raises:
            AlertRuleError: the table does not take them.
        """
        # Two tests may write the same rows, and a view must get both.
        options = {"insert_deduplicate": 0, "deduplicate_blocks_in_dependent_materialized_views": 0}
        try:
            self._client.raw_insert(table, insert_block=lines, settings=options, fmt="JSONEachRow")
        except clickhouse_connect.driver.exceptions.ClickHouseError as error:
            raise AlertRuleError(f"input: {table} does not take these rows: {error}") from None

    def clear(self) -> None:
        """Remove all rows."""
        names = self.store.ask(_TABLES, {"database": self.database}).column("name").to_pylist()
        for name in names:
            self.command(f"TRUNCATE TABLE {name}")

    def close(self) -> None:
        """Let go of it."""
        self._client.close()
        self.store.close()


@contextlib.contextmanager
def scratch_store() -> Iterator[ScratchStore]:
    """Start one in a temporary folder, on free ports of loopback, with nothing of the caller's settings.

    Raises:
        StoreError: the embedded engine does not start.
    """
    with tempfile.TemporaryDirectory(prefix="moescope-alerts-", ignore_cleanup_errors=True) as folder:
        settings = Settings(
            otlp_grpc_port=0,
            otlp_http_port=0,
            sql_port=0,
            metrics_port=0,
            data_dir=folder,
            sql_read_only=False,
            engine_memory_bytes=_MEMORY_BYTES,
            # What a test writes must still be there when it looks.
            landing_ttl_hours=_FOR_EVER_DAYS * 24,
            raw_ttl_hours=_FOR_EVER_DAYS * 24,
            minute_ttl_days=_FOR_EVER_DAYS,
        )
        with Server(settings) as server:
            dsn = f"http://127.0.0.1:{server.ports.sql}/{settings.database}"
            scratch = ScratchStore(dsn, f"http://127.0.0.1:{server.ports.otlp_grpc}", settings.database)
            try:
                yield scratch
            finally:
                scratch.close()
