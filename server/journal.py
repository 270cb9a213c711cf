"""The batches that are being inserted, as files: what a crash left half done is done again from here.

Several requests are inserted together because one insert costs the engine far more than one more request in
it (four of its tables hold sums over the ranks). But the engine recognises a repeated *insert*, and after a
crash the same requests would hardly meet in the same batch again. So a batch is written down before it is
inserted, under a name that is its deduplication token, and removed once it is stored. A batch found at the
start is inserted again, byte for byte under the same token: tables that have it already ignore it.

A batch is one file of rows per table, from which the engine reads them, and then a header: what has no header
was not finished, and no client was told about it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from moescope.schemas.errors import DataDirectoryError
from moescope.server.durable_file import sync_folder, write_durably
from moescope.server.landed_request import LandedRequest, combine, to_wire

_HEADER: Final = ".batch"


@dataclass(frozen=True, slots=True)
class FrozenTable:
    """The rows of a batch for one table, on disk.

    ``columns`` are names in the order of the file, which holds ``rows`` rows in the wire format of
    :mod:`moescope.server.landed_request`.
    """

    name: str
    columns: tuple[str, ...]
    rows: int
    path: Path


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
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
        self._folder = folder
        finished = {path.stem for path in folder.glob(f"*{_HEADER}")}
        for path in folder.iterdir():
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
                path = self._folder / f"{token}.{name}.arrow"
                write_durably(path, [to_wire(table)])
                tables.append(FrozenTable(name, tuple(table.schema.names), len(table), path))
            batch = FrozenBatch(token, tuple(request.digest for request in requests), tuple(tables))
            write_durably(self._header(token), [json.dumps(_header_of(batch)).encode()])
        except OSError:
            self.remove(token)
            raise
        return batch

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
                tuple(self._table(header.stem, table) for table in fields["tables"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DataDirectoryError(f"{header} cannot be read as a batch ({error!r}); {_WAY_OUT}") from None
        for table in batch.tables:
            if not table.path.is_file():
                raise DataDirectoryError(f"{header} misses its rows, {table.path.name}; {_WAY_OUT}")
        return batch

    def _table(self, token: str, fields: Mapping[str, Any]) -> FrozenTable:
        name = str(fields["name"])
        path = self._folder / f"{token}.{name}.arrow"
        return FrozenTable(name, tuple(fields["columns"]), int(fields["rows"]), path)

    def _header(self, token: str) -> Path:
        return self._folder / f"{token}{_HEADER}"


def _header_of(batch: FrozenBatch) -> dict[str, Any]:
    return {
        "digests": [digest.hex() for digest in batch.digests],
        "tables": [
            {"name": table.name, "columns": table.columns, "rows": table.rows} for table in batch.tables
        ],
    }


_WAY_OUT: Final = "move it away to start without its rows, which no client was told are stored"
