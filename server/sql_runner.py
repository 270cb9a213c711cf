"""Runs queries on the embedded engine, a few at a time, each on a handle of its own with limits on it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moescope.schemas.settings import Settings
from moescope.schemas.sql_guard import Checked, Guard
from moescope.schemas.sql_handle import Handle, quote_name, quote_text
from moescope.server.engine import Engine
from moescope.server.sql_request import SqlRequest, as_insert
from moescope.server.sql_settings import session_settings, set_statement


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one query.

    Attributes:
        data: in ``output_format``.
        output_format: ClickHouse's name of the format.
        summary: what ``X-ClickHouse-Summary`` says: counts, and nanoseconds, as text.
    """

    data: bytes
    output_format: str
    summary: dict[str, str]


class SqlRunner:
    """Runs requests. Thread-safe; blocking.

    Args:
        engine: the open engine.
        settings: limits, and whether writes are refused.
    """

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self.version = engine.version
        self._settings = settings
        self._guard = Guard(engine.handle)
        with engine.handle() as handle:
            self._known_settings = frozenset(_lines(handle, "SELECT name FROM system.settings"))
            formats = _lines(handle, "SELECT lower(name), content_type FROM system.formats")
        self._content_types = dict(line.split("\t") for line in formats)

    def run(self, request: SqlRequest, ticket: str) -> Answer:
        """Run a request; ``ticket`` is its own, and ends it where :meth:`cancel_one` is given it.

        Raises:
            QueryError: with ClickHouse's code and name.
        """
        with self._engine.handle() as handle:
            if self._settings.sql_read_only or not request.can_write or request.wants_read_only:
                return self._read(handle, request, ticket)
            return self._write(handle, request)

    def cancel(self) -> None:
        """End every running query; inserts go on."""
        with self._engine.handle() as handle:
            handle.query("KILL QUERY WHERE query_kind = 'Select' ASYNC")

    def cancel_one(self, ticket: str) -> None:
        """End the read that has this ticket; nothing where it has ended, or does not run yet."""
        with self._engine.handle() as handle:
            handle.query(f"KILL QUERY WHERE Settings['log_comment'] = {quote_text(ticket)} ASYNC")

    def content_type(self, output_format: str) -> str:
        """Return the media type of a format."""
        return self._content_types.get(output_format.lower(), "text/plain; charset=UTF-8")

    def _read(self, handle: Handle, request: SqlRequest, ticket: str) -> Answer:
        sql = request.text.decode("utf-8", "surrogateescape")
        checked = self._guard.check(handle, sql, request.parameters)
        settings = session_settings(request.settings, self._settings, self._known_settings)
        # The engine names its queries itself; a comment is how one of them is found.
        handle.query(set_statement({**settings, "log_comment": ticket}))
        handle.query(f"USE {quote_name(request.database)}")
        # The last SET of the handle: it cannot be taken back. 2 is as read-only for a list of settings,
        # and marks them as what they are to a client: changeable.
        handle.query(f"SET readonly = {2 if checked.reads_settings else 1}")
        output_format = checked.output_format or request.output_format
        return _answer(_query(handle, checked, request), output_format)

    def _write(self, handle: Handle, request: SqlRequest) -> Answer:
        if request.settings:
            handle.query(set_statement(request.settings))
        handle.query(f"USE {quote_name(request.database)}")
        insert = as_insert(request.text)
        if insert is not None:
            with tempfile.NamedTemporaryFile(prefix="moescope-insert-") as file:
                file.write(insert.data)
                file.flush()
                rows = handle.insert_file(insert.statement, insert.input_format, Path(file.name))
            return Answer(b"", request.output_format, _summary(written_rows=rows))
        sql = request.text.decode("utf-8", "surrogateescape")
        result = handle.query(sql, request.output_format, request.parameters)
        return _answer(result, request.output_format)


def _lines(handle: Handle, sql: str) -> list[str]:
    return bytes(handle.query(sql, "TabSeparatedRaw").bytes()).decode().splitlines()


def _query(handle: Handle, checked: Checked, request: SqlRequest) -> Any:
    return handle.query(checked.sql, request.output_format, request.parameters)


def _answer(result: Any, output_format: str) -> Answer:
    data = bytes(result.bytes() or b"")
    summary = _summary(
        read_rows=result.storage_rows_read(),
        read_bytes=result.storage_bytes_read(),
        result_rows=result.rows_read(),
        result_bytes=result.bytes_read(),
        elapsed_ns=int(result.elapsed() * 1e9),
    )
    return Answer(data, output_format, summary)


def _summary(**known: int) -> dict[str, str]:
    names = (
        "read_rows",
        "read_bytes",
        "written_rows",
        "written_bytes",
        "total_rows_to_read",
        "result_rows",
        "result_bytes",
        "elapsed_ns",
    )
    return {name: str(known.get(name, 0)) for name in names}
