"""The store on the embedded engine: journal, insert, remember; in that order."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final

from moescope.schemas.errors import QueryError, RequestRefusedError, StoreUnavailableError
from moescope.schemas.sql_handle import Handle, quote_name
from moescope.server.data_directory import DataDirectory
from moescope.server.engine import Engine
from moescope.server.journal import FrozenBatch, FrozenTable, Journal
from moescope.server.landed_request import WIRE_FORMAT, LandedRequest
from moescope.server.own_metrics import OwnMetrics
from moescope.server.refusal import Attempts
from moescope.server.store import INSERT_SETTINGS
from moescope.server.stored_requests import StoredRequests

_LOG: Final = logging.getLogger(__name__)
_SETTINGS: Final = ", ".join(f"{name} = {value}" for name, value in INSERT_SETTINGS.items())


class EmbeddedStore:
    """Stores batches in the embedded engine. Opening it finishes what a crash left under way.

    Args:
        engine: the open engine.
        directory: journal and digests lie there; the caller owns it.
        metrics: counts the batches that the engine refuses for good.

    Raises:
        DataDirectoryError: the journal cannot be read.
    """

    def __init__(self, engine: Engine, directory: DataDirectory, metrics: OwnMetrics | None = None) -> None:
        self._engine = engine
        self._journal = Journal(directory.journal)
        self._stored = StoredRequests(directory.stored_requests)
        self._metrics = OwnMetrics() if metrics is None else metrics
        self._refused = frozenset(self._journal.refused_digests())
        self._attempts = Attempts()
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
        fresh = [
            item for item in requests if item.digest not in self._stored and item.digest not in self._refused
        ]
        if fresh:
            self._commit(fresh)
        refused = frozenset(request.digest for request in requests) & self._refused
        if refused:
            raise RequestRefusedError(
                "the engine refuses the rows of this request, which is not stored; sending it again will not "
                "help, the server's log says why and what to do",
                digests=refused,
            )

    def _commit(self, fresh: Sequence[LandedRequest]) -> None:
        try:
            batch = self._journal.write(fresh)
        except OSError as error:
            raise StoreUnavailableError(f"the journal cannot be written: {error}") from error
        try:
            parts = self._store(batch)
        except StoreUnavailableError:
            # Some tables may have it. Nothing else may be stored before all of them have.
            with self._unfinished_lock:
                self._unfinished.append(batch)
            raise
        if parts:
            with self._unfinished_lock:
                self._unfinished.extend(parts)
            self._finish_unfinished()

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
                self._unfinished[:1] = self._store(self._unfinished[0])

    def _store(self, batch: FrozenBatch) -> list[FrozenBatch]:
        """Store a batch or set it aside; return what is to be stored in its place."""
        parts: list[FrozenBatch] = []
        stored = 0
        try:
            with self._engine.handle() as handle:
                for table in batch.tables:
                    self._insert(handle, table, f"{_SETTINGS}, insert_deduplication_token = '{batch.token}'")
                    stored += 1
            self._stored.add(batch.digests)
            self._journal.remove(batch.token)
        except QueryError as error:
            _LOG.warning("batch %s of %d requests: %s", batch.token, len(batch.digests), error)
            if self._attempts.is_worth_another(batch.token, error, tables_stored=stored):
                raise _unavailable(error) from error
            parts = self._take_apart(batch, error)
        except OSError as error:
            _LOG.warning("batch %s of %d requests: %s", batch.token, len(batch.digests), error)
            raise _unavailable(error) from error
        self._attempts.forget(batch.token)
        return parts

    def _take_apart(self, batch: FrozenBatch, error: QueryError) -> list[FrozenBatch]:
        """Split a batch that the engine refuses for good, or set it aside where that cannot be."""
        try:
            if self._attempts.may_split(batch):
                return self._journal.split(batch)
            header = self._journal.refuse(batch)
        except OSError as disk_error:
            raise _unavailable(disk_error) from disk_error
        self._refused |= frozenset(batch.digests)
        self._metrics.refused_batches.inc()
        _LOG.error(
            "the engine refuses %d request(s) for good: %s. Their rows lie in %s and the files beside it of "
            "that name; move these back into %s once the cause is gone and start the server again",
            len(batch.digests),
            error,
            header,
            header.parent.parent,
        )
        return []

    def _insert(self, handle: Handle, table: FrozenTable, settings: str) -> None:
        columns = ", ".join(quote_name(column) for column in table.columns)
        statement = f"INSERT INTO {self._engine.database}.{table.name} ({columns})"
        rows = handle.insert_file(statement, WIRE_FORMAT, table.path, settings)
        if rows != table.rows:
            raise QueryError(f"the engine read {rows} rows of {table.rows} from {table.path}")


def _unavailable(error: Exception) -> StoreUnavailableError:
    return StoreUnavailableError(f"the embedded engine did not take the rows: {error}")
