"""The store on a ClickHouse server or cluster, over HTTP.

Here each request is inserted on its own, under its own digest as the deduplication token: several moescope
servers may write to one ClickHouse, and a client may repeat a request at another of them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import clickhouse_connect
from clickhouse_connect.driver.exceptions import ClickHouseError

from moescope.schemas import migrate
from moescope.schemas.errors import MigrationError, SettingError, StoreUnavailableError
from moescope.schemas.settings import Settings
from moescope.server.landed_request import WIRE_FORMAT, LandedRequest, to_wire
from moescope.server.store import INSERT_SETTINGS

_SCHEMES: Final = frozenset({"http", "https"})
_CONNECT_SECONDS: Final = 5
_TIMEOUT_SECONDS: Final = 60


class RemoteStore:
    """Stores requests in a ClickHouse server.

    Args:
        dsn: ``http(s)://user:password@host:port``; a database in it is ignored for the settings' own.
        settings: the database name.

    Raises:
        SettingError: the DSN is not one of HTTP.
        StoreUnavailableError: nobody answers there.
        MigrationError: the schema there is newer, or was edited.
    """

    def __init__(self, dsn: str, settings: Settings) -> None:
        if urlsplit(dsn).scheme not in _SCHEMES:
            raise SettingError(
                f"--dsn {redact(dsn)} cannot be written to; name a ClickHouse server as "
                "http://user:password@host:8123, or leave --dsn out to use the embedded engine"
            )
        self._dsn = dsn
        self._settings = settings
        self._clients: list[Any] = []
        self._clients_lock = threading.Lock()
        self._thread = threading.local()
        try:
            self.applied_migrations = migrate.apply(self._client(), settings)
        except ClickHouseError as error:
            self.close()
            raise self._unavailable(error) from None

    def commit(self, requests: Sequence[LandedRequest]) -> None:
        """See :class:`moescope.server.store.Store`."""
        try:
            for request in requests:
                self._insert(request)
        except ClickHouseError as error:
            raise self._unavailable(error) from error

    def check(self) -> None:
        """See :class:`moescope.server.store.Store`."""
        try:
            pending = migrate.status(self._client(), self._settings).pending
        except ClickHouseError as error:
            raise self._unavailable(error) from None
        if pending:
            raise MigrationError(f"{len(pending)} migration(s) are pending; run: moescope migrate")

    def close(self) -> None:
        """See :class:`moescope.server.store.Store`."""
        with self._clients_lock:
            for client in self._clients:
                client.close()
            self._clients.clear()

    def _insert(self, request: LandedRequest) -> None:
        settings = {**INSERT_SETTINGS, "insert_deduplication_token": request.digest.hex()}
        for name, table in sorted(request.tables.items()):
            self._client().raw_insert(
                f"{self._settings.database}.{name}",
                column_names=table.schema.names,
                insert_block=to_wire(table),
                settings=settings,
                fmt=WIRE_FORMAT,
            )

    def _client(self) -> Any:
        """One client per thread: a client runs one call at a time."""
        client = getattr(self._thread, "client", None)
        if client is None:
            client = clickhouse_connect.get_client(
                dsn=self._dsn,
                # The settings' database may not exist before the first migration.
                database="default",
                connect_timeout=_CONNECT_SECONDS,
                send_receive_timeout=_TIMEOUT_SECONDS,
                autogenerate_session_id=False,
                dedicated_pool=True,
            )
            self._thread.client = client
            with self._clients_lock:
                self._clients.append(client)
        return client

    def _unavailable(self, error: Exception) -> StoreUnavailableError:
        return StoreUnavailableError(f"ClickHouse at {redact(self._dsn)} did not take the rows: {error}")


def redact(dsn: str) -> str:
    """Return the DSN without its password, for messages."""
    parts = urlsplit(dsn)
    if parts.password is None:
        return dsn
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return parts._replace(netloc=f"{parts.username or ''}:***@{host}{port}").geturl()
