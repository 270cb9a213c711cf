"""The store on the embedded engine: journal, insert, remember; in that order."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final

from moescope.schemas.errors import QueryError, StoreUnavailableError
from moescope.server.data_directory import DataDirectory
from moescope.server.engine import Engine, Handle, quote_name
from moescope.server.journal import FrozenBatch, FrozenTable, Journal
from moescope.server.landed_request import WIRE_FORMAT, LandedRequest
from moescope.server.store import INSERT_SETTINGS
from moescope.server.stored_requests import StoredRequests

_LOG: Final = logging.getLogger(__name__)
_SETTINGS: Final = ", ".join(f"{name} = {value}" for name, value in INSERT_SETTINGS.items())


class EmbeddedStore:
    """Stores batches in the embedded engine. Opening it finishes what a crash left under way.

    Args:
        engine: the open engine.
        directory: journal and digests lie there; the caller owns it.

    Raises:
        DataDirectoryError: the journal cannot be read.
    """

    def __init__(self, engine: Engine, directory: DataDirectory) -> None:
        self._engine = engine
        self._journal = Journal(directory.journal)
        self._stored = StoredRequests(directory.stored_requests)
        self._unfinished = list(self._journal.unfinished())
        self._unfinished_lock = threading.Lock()
        self.resumed_batches = len(self._unfinished)
        try:
            self._finish_unfinished()
        except StoreUnavailableError:
            # The server starts all the same: it answers queries, and each commit tries again.
            _LOG.exception("a batch from before this start cannot be stored yet")

    def commit(self, requests: Sequence[LandedRequest]) -> None:
        """See :class:`moescope.server.store.Store`."""
        self._finish_unfinished()
        fresh = [request for request in requests if request.digest not in self._stored]
        if not fresh:
            return
        try:
            batch = self._journal.write(fresh)
        except OSError as error:
            raise StoreUnavailableError(f"the journal cannot be written: {error}") from error
        try:
            self._store(batch)
        except StoreUnavailableError:
            # Some tables may have it. Nothing else may be stored before all of them have.
            with self._unfinished_lock:
                self._unfinished.append(batch)
            raise

    def check(self) -> None:
        """See :class:`moescope.server.store.Store`."""
        with self._unfinished_lock:
            waiting = len(self._unfinished)
        if waiting:
            raise StoreUnavailableError(f"{waiting} batch(es) could not be stored yet; the log says why")
        self._engine.scalar("SELECT 1")

    def close(self) -> None:
        """See :class:`moescope.server.store.Store`."""
        # The engine belongs to the caller, and every file is closed after each use.

    def _finish_unfinished(self) -> None:
        if not self._unfinished:
            return
        with self._unfinished_lock:
            while self._unfinished:
                self._store(self._unfinished[0])
                del self._unfinished[0]

    def _store(self, batch: FrozenBatch) -> None:
        settings = f"{_SETTINGS}, insert_deduplication_token = '{batch.token}'"
        try:
            with self._engine.handle() as handle:
                for table in batch.tables:
                    self._insert(handle, table, settings)
            self._stored.add(batch.digests)
        except (QueryError, OSError) as error:
            _LOG.warning("batch %s of %d requests: %s", batch.token, len(batch.digests), error)
            raise StoreUnavailableError(f"the embedded engine did not take the rows: {error}") from error
        self._journal.remove(batch.token)

    def _insert(self, handle: Handle, table: FrozenTable, settings: str) -> None:
        columns = ", ".join(quote_name(column) for column in table.columns)
        statement = f"INSERT INTO {self._engine.database}.{table.name} ({columns})"
        rows = handle.insert_file(statement, WIRE_FORMAT, table.path, settings)
        if rows != table.rows:
            raise QueryError(f"the engine read {rows} rows of {table.rows} from {table.path}")
