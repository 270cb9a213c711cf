"""Open a store and run named queries. The only file of this room that does input or output.

A query is a file ``queries/<name>.sql`` whose header comment lists its parameters, columns and units. Values
are bound by the server, never pasted into the text. Arrays come back as Arrow lists and become numpy arrays
without passing through Python lists.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit, urlunsplit

import numpy as np
import pyarrow as pa

from moescope.schemas.errors import (
    MigrationError,
    MissingExtraError,
    QueryError,
    StoreError,
    StoreUnavailableError,
    UsageError,
)
from moescope.schemas.settings import Settings

try:
    import clickhouse_connect
    from clickhouse_connect.driver.exceptions import ClickHouseError
except ImportError as error:
    raise MissingExtraError("Reading a store", "dashboard") from error

QUERIES_FOLDER: Final = Path(__file__).parent / "queries"
_EMBEDDED: Final = "chdb"
_MAX_IDLE_CLIENTS: Final = 4
_CONNECT_SECONDS: Final = 5
_MISSING_SCHEMA_CODES: Final = {47: "a column", 60: "a table", 81: "the database"}
"""UNKNOWN_IDENTIFIER, UNKNOWN_TABLE, UNKNOWN_DATABASE: what the store lacks."""

# Every failure of the driver reaches the caller as one of our errors; it need not shout as well.
logging.getLogger("clickhouse_connect").addHandler(logging.NullHandler())


class Store:
    """A store that the migrations were applied to. Safe to use from several threads.

    Each query borrows a client that nobody else uses meanwhile: a client serialises its queries, and an
    embedded engine allows one client per thread.
    """

    def __init__(self, dsn: str) -> None:
        self.label = without_password(dsn)
        self._dsn = dsn
        self.database = database_of(dsn)
        self._idle: queue.LifoQueue[Any] = queue.LifoQueue(_MAX_IDLE_CLIENTS)
        self._is_closed = threading.Event()

    def query(self, name: str, **params: str | float | Sequence[str]) -> pa.Table:
        """Run ``queries/<name>.sql`` and return its columns.

        Raises:
            StoreUnavailableError: nobody answers at the DSN.
            MigrationError: the store lacks a table or column that the query reads.
            QueryError: the store refused the query.
        """
        return self._answer(_read_query(name), params, self._explain)

    def ask(self, sql: str, params: Mapping[str, Any]) -> pa.Table:
        """Answer a query that is not one of ours, such as an alert rule's, and return its columns.

        Args:
            sql: one SELECT; ``{name:Type}`` are its parameters.
            params: their values.

        Raises:
            StoreUnavailableError: nobody answers at the DSN.
            QueryError: the store refused the query; in its own words, names that it does not know included.
        """
        return self._answer(sql, params, self._explain_in_its_words)

    def _answer(
        self, sql: str, params: Mapping[str, Any], explain: Callable[[ClickHouseError], StoreError]
    ) -> pa.Table:
        with self._borrow_client() as client:
            try:
                return client.query_arrow(sql, parameters=dict(params))
            except ClickHouseError as error:
                raise explain(error) from error

    def close(self) -> None:
        """Let go of every idle client; an embedded engine closes with the last one."""
        self._is_closed.set()
        while not self._idle.empty():
            self._idle.get_nowait().close()

    @contextmanager
    def _borrow_client(self) -> Iterator[Any]:
        try:
            client = self._idle.get_nowait()
        except queue.Empty:
            client = self._connect()
        try:
            yield client
        finally:
            self._give_back(client)

    def _give_back(self, client: Any) -> None:
        if self._is_closed.is_set():
            client.close()
            return
        try:
            self._idle.put_nowait(client)
        except queue.Full:
            client.close()

    def _connect(self) -> Any:
        options: dict[str, Any] = {"database": self.database}
        if not is_embedded(self._dsn):
            # A session would make the store refuse what two threads ask at once; a pool that the clients of a
            # process share would keep its connections after the last of them was closed.
            options |= {
                "connect_timeout": _CONNECT_SECONDS,
                "autogenerate_session_id": False,
                "dedicated_pool": True,
            }
        try:
            return clickhouse_connect.get_client(dsn=self._dsn, **options)
        except ClickHouseError as error:
            raise self._explain(error) from error
        except (OSError, RuntimeError, ValueError) as error:
            raise self._unavailable(error) from error

    def _explain(self, error: ClickHouseError) -> StoreError:
        code, name = getattr(error, "code", None), getattr(error, "name", None)
        if code in _MISSING_SCHEMA_CODES:
            return MigrationError(
                f"{self.label} lacks {_MISSING_SCHEMA_CODES[code]} that moescope reads. "
                f"Run: moescope migrate --dsn {self.label}"
            )
        if code is None or _is_engine_locked(error):
            return self._unavailable(error)
        return QueryError(f"{self.label} refused a query: {_first_line(error)}", code=code, name=name)

    def _explain_in_its_words(self, error: ClickHouseError) -> StoreError:
        code, name = getattr(error, "code", None), getattr(error, "name", None)
        if code is None or _is_engine_locked(error):
            return self._unavailable(error)
        whole, _, words = _first_line(error).partition("DB::Exception: ")
        return QueryError((words or whole).partition(" (version ")[0], code=code, name=name)

    def _unavailable(self, error: Exception) -> StoreUnavailableError:
        if is_embedded(self._dsn):
            return StoreUnavailableError(
                f"the embedded engine at {self.label} cannot be opened; one process owns a folder at a time. "
                "Read through the process that does (`moescope serve`) by its http:// DSN, or stop it. "
                f"({_first_line(error)})"
            )
        return StoreUnavailableError(
            f"nobody answers at {self.label} ({root_reason(error)}). "
            "Start a store with `moescope serve`, or set MOESCOPE_DSN to one that runs."
        )


def open_store(dsn: str) -> Store:
    """Open the store at ``dsn`` and make sure that somebody answers.

    Args:
        dsn: ``http(s)://user:password@host:port/database`` or ``chdb:///path``; the database is
            ``moescope`` where the DSN names none (``chdb:///path?database=name`` names one).

    Raises:
        UsageError: a DSN of another kind.
        StoreUnavailableError: no folder there, or no server that answers.
        MigrationError: the store has no schema yet.
    """
    parts = urlsplit(dsn)
    if parts.scheme not in {"http", "https", _EMBEDDED}:
        raise UsageError(
            f"the DSN {without_password(dsn)!r} is of no known kind; write http://host:port/database "
            "or chdb:///path"
        )
    # Opening would create the folder, and an empty store would then look like a healthy one.
    if parts.scheme == _EMBEDDED and not Path(parts.path).is_dir():
        raise StoreUnavailableError(
            f"there is no store at {parts.path}. `moescope serve --data-dir {parts.path}` makes one, "
            "or set MOESCOPE_DSN to where the data is."
        )
    store = Store(dsn)
    try:
        store.query("store_schema")
    except StoreError:
        store.close()
        raise
    return store


def column_as_array(table: pa.Table, name: str) -> Any:
    """Return a plain column as a numpy array ``[rows]`` of the column's own dtype."""
    return table.column(name).to_numpy()


def list_column_as_array(table: pa.Table, name: str, width: int) -> Any:
    """Return a column of equally long lists as a numpy array ``[rows, width]`` of the item's dtype.

    Raises:
        ValueError: a list of another length.
    """
    flat = table.column(name).combine_chunks()
    chunks = flat.chunks if isinstance(flat, pa.ChunkedArray) else [flat]
    values = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in chunks]
    return np.concatenate(values or [np.empty(0, dtype=np.uint64)]).reshape(table.num_rows, width)


@functools.cache
def _read_query(name: str) -> str:
    return (QUERIES_FOLDER / f"{name}.sql").read_text(encoding="utf-8")


def is_embedded(dsn: str) -> bool:
    """Whether a DSN names a folder that this process opens itself."""
    return dsn.startswith(f"{_EMBEDDED}:")


def _is_engine_locked(error: Exception) -> bool:
    return "Error initializing EmbeddedServer" in str(error)


def database_of(dsn: str) -> str:
    """Return the database that a DSN names, or the settings' own."""
    parts = urlsplit(dsn)
    named = parse_qs(parts.query).get("database")
    if named:
        return named[0]
    in_path = "" if parts.scheme == _EMBEDDED else parts.path.strip("/")
    return in_path or Settings().database


def without_password(dsn: str) -> str:
    """Return a DSN as people may see it."""
    parts = urlsplit(dsn)
    if parts.password is None:
        return dsn
    netloc = parts.netloc.replace(f":{parts.password}@", ":…@")
    return urlunsplit(parts._replace(netloc=netloc))


def root_reason(error: BaseException) -> str:
    """Return the operating system's words, if one of a chain of transport errors has them."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        seen = seen.__cause__ or seen.__context__
    return _first_line(error)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
