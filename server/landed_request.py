"""What the writer hands to a store: the rows of requests, and how they travel."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

DIGEST_BYTES: Final = 16
WIRE_FORMAT: Final = "ArrowStream"
"""ClickHouse's name of the format in which :func:`to_wire` writes."""

_WIRE_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")
_LIST_COLUMNS: Final = ("BucketCounts", "ExplicitBounds", "PositiveBucketCounts", "NegativeBucketCounts")


@dataclass(frozen=True, slots=True)
class LandedRequest:
    """One accepted request.

    Attributes:
        digest: of the request's own bytes: the same request has the same digest, however often it comes.
        tables: rows by landing table.
        size_bytes: length of the request's body, decompressed.
    """

    digest: bytes
    tables: dict[str, pa.Table]
    size_bytes: int

    @property
    def rows(self) -> int:
        """Rows of all tables."""
        return sum(len(table) for table in self.tables.values())


def digest_of(body: bytes) -> bytes:
    """Return the digest of a request body, decompressed: the fastest that common processors have."""
    return hashlib.sha256(body).digest()[:DIGEST_BYTES]


def combine(requests: Sequence[LandedRequest]) -> dict[str, pa.Table]:
    """Return the rows of several requests as one table each, in the requests' order."""
    tables: dict[str, list[pa.Table]] = {}
    for request in requests:
        for name, table in request.tables.items():
            tables.setdefault(name, []).append(table)
    return {name: pa.concat_tables(_with_equal_types(parts)) for name, parts in sorted(tables.items())}


def to_wire(table: pa.Table) -> bytes:
    """Write a table as one Arrow record batch: one block for the store, hence one part and one token."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_WIRE_OPTIONS) as writer:
        writer.write_table(table.combine_chunks())
    buffer: Any = sink.getvalue()
    data: bytes = buffer.to_pybytes()
    return data


def _with_equal_types(parts: list[pa.Table]) -> list[pa.Table]:
    """Widen the narrowed list columns where the parts disagree."""
    schema = parts[0].schema
    if all(part.schema.equals(schema) for part in parts[1:]):
        return parts
    for name in _LIST_COLUMNS:
        index = schema.get_field_index(name)
        if index >= 0:
            widest = max((part.schema.field(name).type for part in parts), key=_width)
            schema = schema.set(index, pa.field(name, widest))
    return [part.cast(schema) for part in parts]


def _width(list_type: pa.DataType) -> int:
    width: int = list_type.value_type.bit_width
    return width + int(pa.types.is_floating(list_type.value_type))
