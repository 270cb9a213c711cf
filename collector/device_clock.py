"""Points in the time of a device, and what lies between two of them: never by waiting for it.

On the host a mark is the time of a monotonic clock. On CUDA it is an event in the engine's own stream, which
is read once the device has passed it: work is launched long before it is done, so that the host's clock would
time the launching. The CUDA side is not executed by the tests of this repository.
"""

from __future__ import annotations

import time
from typing import Any, Protocol


class Clock(Protocol):
    """Makes marks on the thread and stream that launch the work."""

    def mark(self) -> Any:
        """Return the present point in time of the device."""

    def has_passed(self, mark: Any) -> bool:
        """Whether the device has come so far. Never waits."""

    def ns_between(self, start: Any, end: Any) -> int:
        """Nanoseconds between two marks that have passed."""


class HostClock:
    """For devices that have done their work when a call returns."""

    def mark(self) -> int:
        """See :meth:`Clock.mark`."""
        return time.perf_counter_ns()

    def has_passed(self, mark: int) -> bool:  # noqa: ARG002 - the protocol's signature
        """See :meth:`Clock.has_passed`."""
        return True

    def ns_between(self, start: int, end: int) -> int:
        """See :meth:`Clock.ns_between`."""
        return end - start


class CudaClock:
    """Events of the current stream."""

    def mark(self) -> Any:
        """See :meth:`Clock.mark`."""
        import torch  # noqa: PLC0415 - where there is CUDA there is torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def has_passed(self, mark: Any) -> bool:
        """See :meth:`Clock.has_passed`."""
        return bool(mark.query())

    def ns_between(self, start: Any, end: Any) -> int:
        """See :meth:`Clock.ns_between`."""
        return int(start.elapsed_time(end) * 1_000_000)


def clock_of(device_type: str) -> Clock | None:
    """The clock for ``device_type`` as torch names it; None for a device that has none here."""
    if device_type == "cuda":
        return CudaClock()
    return HostClock() if device_type == "cpu" else None
