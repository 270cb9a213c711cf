"""A tensor's values on the host, fetched beside the engine's own work: never by waiting for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from moescope.schemas.records import IntArray


class DeviceCopy:
    """Copies of one integer tensor as int64, from any thread.

    On CUDA the copy runs on a stream of its own into a pinned buffer; the engine's stream neither waits for
    it nor is waited for. Each 8-byte cell is read whole. Values that the device has queued but not yet
    computed are missing: for counters that only grow, the next copy has them. Other devices than CUDA and
    the host have no such stream here: there a copy waits for the device.

    Both the stream and the buffer are made here, since making them is what must not happen while another
    thread captures a CUDA graph.

    Args:
        tensor: contiguous, of whole numbers, any dtype.
    """

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self._is_cuda = tensor.device.type == "cuda"
        self._lock = threading.RLock()  # captures may be within captures
        if self._is_cuda:
            self._stream = torch.cuda.Stream(device=tensor.device)
            self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._copied = torch.cuda.Event()

    def fetch(self) -> IntArray:
        """Return the values, owned by the caller. Waits for the copy alone."""
        with self._lock:
            if not self._is_cuda:
                # A real copy: .cpu() alone would hand out the live tensor.
                return np.array(self._tensor.cpu().numpy(), dtype=np.int64)
            self._start()
            self._copied.synchronize()
            return self._take()

    def start(self) -> None:
        """Begin a copy without waiting; :meth:`poll` picks it up. One thread only."""
        if self._is_cuda:
            self._start()

    def poll(self) -> IntArray | None:
        """Return what :meth:`start` asked for, or None while it is on its way. Never waits."""
        if not self._is_cuda:
            return self.fetch()
        return self._take() if self._copied.query() else None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep other threads' :meth:`fetch` waiting, e.g. while this one captures a graph."""
        with self._lock:
            yield

    def _start(self) -> None:
        with torch.cuda.device(self._tensor.device), torch.cuda.stream(self._stream):
            self._host.copy_(self._tensor, non_blocking=True)
            self._copied.record(self._stream)

    def _take(self) -> IntArray:
        return np.array(self._host.numpy(), dtype=np.int64)
