"""What the writer needs of a store. The embedded engine and a ClickHouse server both have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from moescope.server.landed_request import LandedRequest

# An insert is one block, so that its token stands for all of it, and its views recognise it too.
INSERT_SETTINGS: Final[dict[str, int]] = {
    "async_insert": 0,
    "deduplicate_blocks_in_dependent_materialized_views": 1,
    "max_insert_block_size": 10_000_000,
    "min_insert_block_size_rows": 10_000_000,
    "min_insert_block_size_bytes": 2**31,
    "max_insert_threads": 1,
    "max_partitions_per_insert_block": 0,
}


class Store(Protocol):
    """Keeps requests, each once."""

    def commit(self, requests: Sequence[LandedRequest]) -> None:
        """Store requests; when this returns they are on disk and can be queried.

        A request that is stored already is recognised by its digest and left alone. Thread-safe.

        Raises:
            StoreUnavailableError: some or all may be missing; the same requests may be committed again.
            RequestRefusedError: the store will never take those that it names; the others are stored.
        """

    def check(self) -> None:
        """Make sure that the store answers and has its schema.

        Raises:
            StoreError: it does not; the message says why.
        """

    def close(self) -> None:
        """Give up what the store holds open."""
