"""What a request to the ClickHouse HTTP interface asks for."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from moescope.schemas.sql_refusals import NOT_IMPLEMENTED, refusal
from moescope.server.sql_settings import TRANSPORT

DEFAULT_FORMAT: Final = "TabSeparated"
_PARAMETER: Final = "param_"
_QUERY_ID: Final = re.compile(r"[\x21-\x7e]{1,256}")
_TRUE: Final = frozenset({"1", "true"})
_INSERT: Final = re.compile(
    rb"\s*(INSERT\s+INTO\s.*?)\sFORMAT\s+(\w+)[ \t\r]*(?:\n|;?\s*\Z|(?=[^\w\s]))", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """One query with everything that came along.

    Attributes:
        text: the query as bytes: the ``query`` parameter, and after it the body.
        database: where unqualified names are looked up.
        output_format: used where the query has no ``FORMAT`` clause.
        parameters: values of ``{name:Type}``, escaped as in TabSeparated, by name.
        settings: ClickHouse settings.
        query_id: the client's own, or a new one.
        accept_encoding: packings of the answer that the client asks for; None for none.
        can_write: the method allows it; a GET never writes.
    """

    text: bytes
    database: str
    output_format: str
    parameters: Mapping[str, str]
    settings: Mapping[str, str]
    query_id: str
    accept_encoding: str | None
    can_write: bool

    @property
    def is_empty(self) -> bool:
        """Whether there is no query at all, as in a health check."""
        return not self.text.strip()

    @property
    def wants_read_only(self) -> bool:
        """Whether the client itself asks that nothing be written."""
        return self.settings.get("readonly", "0") in {"1", "2"}


@dataclass(frozen=True, slots=True)
class InsertRequest:
    """An ``INSERT`` whose rows came with it."""

    statement: str
    input_format: str
    data: bytes


def parse_request(
    method: str,
    parameters: Iterable[tuple[str, str]],
    headers: Mapping[str, str],
    body: bytes,
    default_database: str,
) -> SqlRequest:
    """Read a request the way ClickHouse does: the query is the parameter, a newline, and the body.

    Raises:
        QueryError: it asks for ClickHouse's own block compression, which is not spoken here.
    """
    given = dict(parameters)
    for name in ("compress", "decompress"):
        if given.get(name, "0").lower() in _TRUE:
            raise refusal(
                NOT_IMPLEMENTED,
                f"{name}=1, ClickHouse's own block compression, is not spoken here; use "
                "enable_http_compression=1 with Accept-Encoding, or Content-Encoding: gzip, zstd or lz4",
            )
    query = given.get("query", "").encode("utf-8", "surrogateescape")
    query_id = given.get("query_id", "")
    database = given.get("database") or headers.get("x-clickhouse-database") or default_database
    packs = given.get("enable_http_compression", "0").lower() in _TRUE
    return SqlRequest(
        text=query + b"\n" + body if query and body else query or body,
        # What stock clients send when nobody configured them.
        database=default_database if database == "default" else database,
        output_format=given.get("default_format") or headers.get("x-clickhouse-format") or DEFAULT_FORMAT,
        parameters={
            name.removeprefix(_PARAMETER): value
            for name, value in given.items()
            if name.startswith(_PARAMETER)
        },
        settings={
            name: value
            for name, value in given.items()
            if name not in TRANSPORT and not name.startswith(_PARAMETER)
        },
        query_id=query_id if _QUERY_ID.fullmatch(query_id) else str(uuid.uuid4()),
        accept_encoding=headers.get("accept-encoding") if packs else None,
        can_write=method == "POST",
    )


def as_insert(text: bytes) -> InsertRequest | None:
    """Split ``INSERT … FORMAT X`` from its rows; None where it is something else.

    ``INSERT … VALUES`` and ``INSERT … SELECT`` are something else: the engine reads them as one text.
    """
    match = _INSERT.match(text)
    if match is None:
        return None
    statement = match[1].decode("utf-8", "surrogateescape")
    input_format = match[2].decode()
    if input_format.lower() == "values":
        return None
    return InsertRequest(statement, input_format, text[match.end() :])
