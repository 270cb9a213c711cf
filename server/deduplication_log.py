"""Makes the engine's deduplication logs agree with its parts, before the engine is opened after a crash.

A MergeTree table appends to its log which part an insert's token became, and only then gives the part its
name. A process killed between the two leaves a token without a part: the repetition of that insert, which
was never acknowledged, would be ignored and its rows lost. So an entry whose part is not on disk, neither
itself nor inside a merged one, is taken out. Where a part is gone for a better reason (its time to live is
over), its token only stops being recognised.

File format, one entry a line: ``<1 add | 2 drop> TAB <part> TAB <token hash>``. A part is named
``<partition>_<first block>_<last block>_<level>[_<mutation>]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moescope.server.durable_file import write_durably

_ADD: Final = "1"
_PART: Final = re.compile(r"(?P<partition>.+?)_(?P<first>-?\d+)_(?P<last>\d+)_\d+(?:_\d+)?")
_LOG_FOLDER: Final = "deduplication_logs"
_TAIL: Final = 256
"""Entries looked at, from the end: commits follow one another, so a kill leaves at most the last open."""


@dataclass(frozen=True, slots=True)
class _Blocks:
    partition: str
    first: int
    last: int

    def holds(self, other: _Blocks) -> bool:
        return self.partition == other.partition and self.first <= other.first and other.last <= self.last


def repair_deduplication_logs(engine_folder: Path) -> int:
    """Take out the entries without a part, in every table; return how many there were.

    Must run while no process has the engine open.
    """
    logs = sorted(engine_folder.glob(f"store/*/*/{_LOG_FOLDER}/*.txt"))
    return sum(_repair(log) for log in logs)


def _repair(log: Path) -> int:
    lines = log.read_bytes().splitlines(keepends=True)
    parts = _parts_by_partition(log.parent.parent)
    kept = lines[:-_TAIL] + [line for line in lines[-_TAIL:] if _is_backed(line, parts)]
    if len(kept) < len(lines):
        write_durably(log, kept)
    return len(lines) - len(kept)


def _is_backed(line: bytes, parts: dict[str, list[_Blocks]]) -> bool:
    fields = line.decode(errors="replace").rstrip("\n").split("\t")
    if not line.endswith(b"\n") or len(fields) != 3:
        return False
    if fields[0] != _ADD:
        return True
    wanted = _blocks(fields[1])
    return wanted is not None and any(part.holds(wanted) for part in parts.get(wanted.partition, ()))


def _parts_by_partition(table_folder: Path) -> dict[str, list[_Blocks]]:
    parts: dict[str, list[_Blocks]] = {}
    for blocks in _all_blocks(path.name for path in table_folder.iterdir() if path.is_dir()):
        parts.setdefault(blocks.partition, []).append(blocks)
    return parts


def _all_blocks(names: Iterable[str]) -> Iterator[_Blocks]:
    for name in names:
        blocks = _blocks(name)
        if blocks is not None:
            yield blocks


def _blocks(part_name: str) -> _Blocks | None:
    if part_name.startswith(("tmp_", "delete_tmp_")):
        return None
    match = _PART.fullmatch(part_name)
    return None if match is None else _Blocks(match["partition"], int(match["first"]), int(match["last"]))
