"""The batches that are being inserted, as files: what a crash left half done is done again from here.

Several requests are inserted together because one insert costs the engine far more than one more request in
it (four of its tables hold sums over the ranks). But the engine recognises a repeated *insert*, and after a
crash the same requests would hardly meet in the same batch again. So a batch is written down before it is
inserted, under a name that is its deduplication token, and removed once it is stored. A batch found at the
start is inserted again, byte for byte under the same token: tables that have it already ignore it.

A batch is one file of rows per table, from which the engine reads them, and then a header: what has no header
was not finished, and no client was told about it.

A batch that the engine refuses for good is split into its requests, ``<token>-<number>``, and what is refused
even alone is moved to ``refused/``. Moved back by hand, it is inserted at the next start under its old
token.
"""

from __future__ import annotations

import itertools
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from moescope.schemas.errors import DataDirectoryError
from moescope.server.durable_file import sync_folder, write_durably
from moescope.server.landed_request import LandedRequest, combine, to_wire

_HEADER: Final = ".batch"
_REFUSED: Final = "refused"
_PART: Final = "-"


@dataclass(frozen=True, slots=True)
class FrozenTable:
    """The rows of a batch for one table, on disk.

    ``columns`` are names in the order of the file, which holds ``rows`` rows in the wire format of
    :mod:`moescope.server.landed_request`: ``request_rows[i]`` of them of the batch's request i, in its order.
    """

    name: str
    columns: tuple[str, ...]
    rows: int
    path: Path
    request_rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FrozenBatch:
    """Requests as they are inserted, never changed again.

    ``token`` recognises the insert when it is repeated; ``digests`` are those of the requests in it.
    """

    token: str
    digests: tuple[bytes, ...]
    tables: tuple[FrozenTable, ...]


class Journal:
    """The folder of batches under way."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._refused = folder / _REFUSED
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
        finished = {path.stem for path in folder.glob(f"*{_HEADER}")}
        # A crash while a batch was split: the whole one is still there, and is split again.
        finished -= {token for token in finished if _PART in token and token.partition(_PART)[0] in finished}
        for path in folder.iterdir():
            if path.is_dir():
                continue
            if path.name.partition(".")[0] not in finished or path.suffix == ".tmp":
                path.unlink()

    def write(self, requests: Sequence[LandedRequest]) -> FrozenBatch:
        """Put requests on disk as one batch; when this returns, a crash can no longer lose it.

        Raises:
            OSError: the disk does not take them; nothing is left behind.
        """
        token = uuid.uuid4().hex
        try:
            tables = []
            for name, table in combine(requests).items():
                counts = tuple(len(item.tables.get(name, ())) for item in requests)
                tables.append(self._write_table(token, name, table, counts))
            batch = FrozenBatch(token, tuple(request.digest for request in requests), tuple(tables))
            self._write_header(batch)
        except OSError:
            self.remove(token)
            raise
        return batch

    def split(self, batch: FrozenBatch) -> list[FrozenBatch]:
        """Put a batch, nothing of which may be stored yet, on disk again as one batch for each request.

        Raises:
            OSError: the disk does not take them; the batch is as it was.
        """
        tables: list[list[FrozenTable]] = [[] for _ in batch.digests]
        for table in batch.tables:
            rows = pa.ipc.open_stream(table.path.read_bytes()).read_all()
            starts = itertools.accumulate(table.request_rows, initial=0)
            for number, (start, count) in enumerate(zip(starts, table.request_rows, strict=False)):
                if count:
                    token, part = f"{batch.token}{_PART}{number}", rows.slice(start, count)
                    tables[number].append(self._write_table(token, table.name, part, (count,)))
        parts = [
            FrozenBatch(f"{batch.token}{_PART}{number}", (digest,), tuple(tables[number]))
            for number, digest in enumerate(batch.digests)
        ]
        for part in parts:
            self._write_header(part)
        self.remove(batch.token)
        return parts

    def refuse(self, batch: FrozenBatch) -> Path:
        """Move a batch out of the way and return its header's new path."""
        header = self._header(batch.token)
        self._refused.mkdir(exist_ok=True)
        sync_folder(self._folder)
        for path in (*(table.path for table in batch.tables), header):
            target = self._refused / path.name
            if path.exists() and not target.exists():
                os.link(path, target)
        sync_folder(self._refused)
        self.remove(batch.token)
        return self._refused / header.name

    def refused_digests(self) -> set[bytes]:
        """Read of which requests the batches in ``refused/`` are."""
        headers = self._refused.glob(f"*{_HEADER}")
        return {digest for header in headers for digest in self._read(header).digests}

    def remove(self, token: str) -> None:
        """Forget a batch that is stored: the header first, so that the rest means nothing without it."""
        self._header(token).unlink(missing_ok=True)
        for path in self._folder.glob(f"{token}.*"):
            path.unlink(missing_ok=True)

    def unfinished(self) -> Iterator[FrozenBatch]:
        """Read what is under way, oldest first.

        Raises:
            DataDirectoryError: a file is not what was written.
        """
        for path in sorted(self._folder.glob(f"*{_HEADER}"), key=lambda path: path.stat().st_mtime_ns):
            yield self._read(path)

    def _read(self, header: Path) -> FrozenBatch:
        try:
            fields = json.loads(header.read_bytes())
            batch = FrozenBatch(
                header.stem,
                tuple(bytes.fromhex(digest) for digest in fields["digests"]),
                tuple(_table(header, table) for table in fields["tables"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DataDirectoryError(f"{header} cannot be read as a batch ({error!r}); {_WAY_OUT}") from None
        for table in batch.tables:
            if not table.path.is_file():
                raise DataDirectoryError(f"{header} misses its rows, {table.path.name}; {_WAY_OUT}")
        return batch

    def _write_table(self, token: str, name: str, rows: pa.Table, counts: tuple[int, ...]) -> FrozenTable:
        path = self._folder / f"{token}.{name}.arrow"
        write_durably(path, [to_wire(rows)])
        return FrozenTable(name, tuple(rows.schema.names), len(rows), path, counts)

    def _write_header(self, batch: FrozenBatch) -> None:
        write_durably(self._header(batch.token), [json.dumps(_header_of(batch)).encode()])

    def _header(self, token: str) -> Path:
        return self._folder / f"{token}{_HEADER}"


def _table(header: Path, fields: Mapping[str, Any]) -> FrozenTable:
    name = str(fields["name"])
    path = header.with_name(f"{header.stem}.{name}.arrow")
    counts = tuple(fields.get("request_rows", ()))
    return FrozenTable(name, tuple(fields["columns"]), int(fields["rows"]), path, counts)


def _header_of(batch: FrozenBatch) -> dict[str, Any]:
    return {
        "digests": [digest.hex() for digest in batch.digests],
        "tables": [
            {
                "name": table.name,
                "columns": table.columns,
                "rows": table.rows,
                "request_rows": table.request_rows,
            }
            for table in batch.tables
        ],
    }


_WAY_OUT: Final = "move it away to start without its rows, which no client was told are stored"
