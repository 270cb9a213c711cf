"""When to stop trying a batch that the engine does not take, and whether it can be taken apart then."""

from __future__ import annotations

from collections import Counter
from typing import Final

from moescope.schemas.errors import QueryError
from moescope.server.journal import FrozenBatch

MAX_ATTEMPTS: Final = 3
_PASSING: Final = frozenset({159, 173, 202, 209, 236, 241, 394, 439})
"""ClickHouse's codes for timeouts, memory, too many queries, and aborted work: another attempt may do."""

_MACHINE: Final = frozenset({74, 75, 76, 242, 243, 252})
"""Codes for files, read-only tables, a full disk and too many parts: never the fault of one batch."""

_VIEW: Final = "while pushing to view"


class Attempts:
    """Remembers the failures of the batches under way. The caller sees to one thread per batch."""

    def __init__(self) -> None:
        self._failures: Counter[str] = Counter()
        self._touched: set[str] = set()

    def is_worth_another(self, token: str, error: QueryError, *, tables_stored: int) -> bool:
        """Note a failure and say whether the same batch may succeed later.

        Args:
            token: of the batch.
            error: what the engine said.
            tables_stored: how many of its tables had their rows by then.
        """
        if tables_stored or error.code is None or _VIEW in str(error):
            self._touched.add(token)
        if error.code in _MACHINE:
            return True
        self._failures[token] += 1
        is_passing = error.code is None or error.code in _PASSING
        return is_passing and self._failures[token] < MAX_ATTEMPTS

    def may_split(self, batch: FrozenBatch) -> bool:
        """Whether its requests can be tried one by one.

        Not where some of its rows are stored: under other tokens they would be stored twice.
        """
        counted = all(len(table.request_rows) == len(batch.digests) for table in batch.tables)
        return len(batch.digests) > 1 and counted and batch.token not in self._touched

    def forget(self, token: str) -> None:
        """Forget a batch that is stored or set aside."""
        self._failures.pop(token, None)
        self._touched.discard(token)
