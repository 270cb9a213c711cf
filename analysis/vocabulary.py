"""Words of closed vocabularies that a store may hold and that this version does not know."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

logger = logging.getLogger("moescope")

_Row = TypeVar("_Row", bound=Mapping[str, Any])


def known_rows(rows: Iterable[_Row], column: str, words: type[StrEnum]) -> list[_Row]:
    """Leave out rows whose word is unknown, and log which: one row must not take a whole page down.

    A server rejects such points; what it stored before it did, or what a newer version stored, is left out.

    Args:
        rows: by column.
        column: the column that holds a word.
        words: its vocabulary.
    """
    known = frozenset(word.value for word in words)
    kept, unknown = [], set()
    for row in rows:
        if row[column] in known:
            kept.append(row)
        else:
            unknown.add(str(row[column]))
    if unknown:
        logger.warning(
            "stored rows are left out: their %s is no %s: %s", column, words.__name__, sorted(unknown)
        )
    return kept
