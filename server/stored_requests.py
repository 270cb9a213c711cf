"""The digests of the requests that are stored: how a repeated request is recognised, across restarts too."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from moescope.server.durable_file import write_durably
from moescope.server.landed_request import DIGEST_BYTES

CAPACITY: Final = 100_000
"""Requests that are remembered. At 64 ranks and one request each 10 s about four hours."""


class StoredRequests:
    """A set of digests with a file behind it. Thread-safe.

    The file is only ever appended to, one digest after the other; a torn end, which a crash can leave, is
    cut off. It is written anew when it has grown to twice the capacity.
    """

    def __init__(self, path: Path, capacity: int = CAPACITY) -> None:
        self._path = path
        self._capacity = capacity
        self._lock = threading.Lock()
        data = path.read_bytes() if path.exists() else b""
        whole = len(data) - len(data) % DIGEST_BYTES
        digests = (data[start : start + DIGEST_BYTES] for start in range(0, whole, DIGEST_BYTES))
        self._order: deque[bytes] = deque(digests, maxlen=capacity)
        self._known = set(self._order)
        self._rewrite()

    def __contains__(self, digest: bytes) -> bool:
        with self._lock:
            return digest in self._known

    def add(self, digests: Iterable[bytes]) -> None:
        """Remember digests; when this returns they are on disk."""
        with self._lock:
            new = [digest for digest in digests if digest not in self._known]
            with self._path.open("ab") as file:
                file.write(b"".join(new))
                file.flush()
                os.fsync(file.fileno())
            for digest in new:
                self._remember(digest)
            self._written += len(new)
            if self._written > 2 * self._capacity:
                self._rewrite()

    def _remember(self, digest: bytes) -> None:
        if len(self._order) == self._capacity:
            self._known.discard(self._order[0])
        self._order.append(digest)
        self._known.add(digest)

    def _rewrite(self) -> None:
        write_durably(self._path, self._order)
        self._written = len(self._order)
