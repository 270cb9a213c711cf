"""The batches that are being inserted, as files: what a crash left half done is done again from here.

Several requests are inserted together because one insert costs the engine far more than one more request in
it (four of its tables hold sums over the ranks). But the engine recognises a repeated *insert*, and after a
crash the same requests would hardly meet in the same batch again. So a batch is written down before it is
inserted, under a name that is its deduplication token, and removed once it is stored. A batch found at the
start is inserted again, byte for byte under the same token: tables that have it already ignore it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moescope.schemas.errors import DataDirectoryError
from moescope.server.durable_file import sync_folder, write_durably
from moescope.server.landed_request import LandedRequest, combine, to_wire

_SUFFIX: Final = ".batch"


@dataclass(frozen=True, slots=True)
class FrozenBatch:
    """Requests as they are inserted, never changed again.

    Attributes:
        token: recognises the insert when it is repeated; also the name of the file.
        digests: of the requests in it.
        columns: names by table, in the order of the payload.
        payloads: rows by table, in the wire format of :mod:`moescope.server.landed_request`.
    """

    token: str
    digests: tuple[bytes, ...]
    columns: Mapping[str, Sequence[str]]
    payloads: Mapping[str, bytes]


def freeze(requests: Sequence[LandedRequest]) -> FrozenBatch:
    """Put requests together under a new token."""
    tables = combine(requests)
    return FrozenBatch(
        uuid.uuid4().hex,
        tuple(request.digest for request in requests),
        {name: table.schema.names for name, table in tables.items()},
        {name: to_wire(table) for name, table in tables.items()},
    )


class Journal:
    """The folder of batches under way."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
        for leftover in folder.glob("*.tmp"):
            leftover.unlink()
        self._folder = folder

    def write(self, batch: FrozenBatch) -> None:
        """Put a batch on disk; when this returns, a crash can no longer lose it."""
        header = {
            "digests": [digest.hex() for digest in batch.digests],
            "tables": [
                {"name": name, "columns": list(batch.columns[name]), "bytes": len(payload)}
                for name, payload in batch.payloads.items()
            ],
        }
        line = json.dumps(header).encode() + b"\n"
        write_durably(self._path(batch.token), [line, *batch.payloads.values()])

    def remove(self, token: str) -> None:
        """Forget a batch that is stored."""
        self._path(token).unlink(missing_ok=True)

    def unfinished(self) -> Iterator[FrozenBatch]:
        """Read what is under way, oldest first.

        Raises:
            DataDirectoryError: a file is not what was written.
        """
        for path in sorted(self._folder.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime_ns):
            yield _read(path)

    def _path(self, token: str) -> Path:
        return self._folder / f"{token}{_SUFFIX}"


def _read(path: Path) -> FrozenBatch:
    try:
        line, _, rest = path.read_bytes().partition(b"\n")
        header = json.loads(line)
        columns, payloads, start = {}, {}, 0
        for table in header["tables"]:
            columns[table["name"]] = tuple(table["columns"])
            payloads[table["name"]] = rest[start : start + table["bytes"]]
            start += table["bytes"]
        digests = tuple(bytes.fromhex(digest) for digest in header["digests"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataDirectoryError(f"{path} cannot be read as a batch ({error}); {_WAY_OUT}") from None
    if start != len(rest):
        raise DataDirectoryError(f"{path} has {len(rest)} bytes of rows instead of {start}; {_WAY_OUT}")
    return FrozenBatch(path.stem, digests, columns, payloads)


_WAY_OUT: Final = "move it away to start without its rows, which no client was told are stored"
