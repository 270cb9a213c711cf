"""A migrated, empty store that is gone afterwards: what rules are checked and tested against."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from moescope.analysis.store import Store, open_store
from moescope.schemas.settings import Settings
from moescope.server.app import Server

_MEMORY_BYTES: Final = 2 * 2**30
_FOR_EVER_DAYS: Final = 3650


@dataclass(frozen=True, slots=True)
class ScratchStore:
    """An embedded engine with its ports.

    Attributes:
        store: answers rules.
        otlp_endpoint: takes telemetry, as from an engine.
        database: where the tables are.
    """

    store: Store
    otlp_endpoint: str
    database: str


@contextlib.contextmanager
def scratch_store() -> Iterator[ScratchStore]:
    """Start one in a temporary folder, on free ports of loopback, with nothing of the caller's settings.

    Raises:
        StoreError: the embedded engine does not start.
    """
    with tempfile.TemporaryDirectory(prefix="moescope-alerts-", ignore_cleanup_errors=True) as folder:
        settings = Settings(
            otlp_grpc_port=0,
            otlp_http_port=0,
            sql_port=0,
            metrics_port=0,
            data_dir=folder,
            sql_read_only=False,
            engine_memory_bytes=_MEMORY_BYTES,
            # What a test writes must still be there when it looks.
            landing_ttl_hours=_FOR_EVER_DAYS * 24,
            raw_ttl_hours=_FOR_EVER_DAYS * 24,
            minute_ttl_days=_FOR_EVER_DAYS,
        )
        with Server(settings) as server:
            store = open_store(f"http://127.0.0.1:{server.ports.sql}/{settings.database}")
            try:
                yield ScratchStore(store, f"http://127.0.0.1:{server.ports.otlp_grpc}", settings.database)
            finally:
                store.close()
