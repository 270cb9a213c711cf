"""Amounts that people write: bytes with a unit, shares with a percent sign."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from moescope.schemas.errors import UsageError

_BYTES: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(k|[MGT]|[KMGT]i)?B")
_SHARE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_UNITS: Final = {
    "": 1.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}


@dataclass(frozen=True, slots=True)
class MoveLimit:
    """The most that a re-plan may move: a share of the physical experts, or bytes."""

    share: float | None = None
    size_bytes: float | None = None


def parse_bytes(option: str, text: str) -> float:
    """Read ``80GB``, ``17.5 MB``, ``40GiB``.

    Raises:
        UsageError: it is no size above 0.
    """
    match = _BYTES.fullmatch(text.strip())
    size = float(match[1]) * _UNITS[match[2] or ""] if match else 0.0
    if size <= 0:
        raise UsageError(f"{option} {text}: write a size with its unit, as in 17.5MB, 80GB or 40GiB")
    return size


def parse_move_limit(text: str) -> MoveLimit:
    """Read ``2%`` or ``40GB``; ``0%`` moves nothing.

    Raises:
        UsageError: it is neither.
    """
    match = _SHARE.fullmatch(text.strip())
    if match and float(match[1]) <= 100:
        return MoveLimit(share=float(match[1]) / 100)
    if match or not _BYTES.fullmatch(text.strip()):
        raise UsageError(
            f"--max-moved {text}: write a share of all physical experts, as in 2%, or a size, as in 40GB"
        )
    return MoveLimit(size_bytes=parse_bytes("--max-moved", text))


def parse_slots(text: str, ranks: int | None) -> tuple[int, ...]:
    """Read ``15,15,14,14``: slots of each rank in every layer.

    Raises:
        UsageError: no whole numbers, or not one for each rank.
    """
    try:
        slots = tuple(int(part) for part in text.split(","))
    except ValueError:
        slots = ()
    if not slots or min(slots) < 0 or (ranks is not None and len(slots) != ranks):
        raise UsageError(
            f"--slots-per-rank {text}: write the slots of each of the {ranks or 'group’s'} ranks, as in "
            "15,15,14,14"
        )
    return slots
