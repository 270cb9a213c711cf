"""What the GPUs themselves say: how busy, how full, and what went over their links."""

from __future__ import annotations

from dataclasses import dataclass

from moescope.analysis.span import Span
from moescope.analysis.store import Store


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU over a span, as ``queries/gpu.sql`` describes it; None where the GPU does not say."""

    ep_group: str
    ep_rank: int
    host: str
    gpu: str
    utilization: float | None
    memory_used_bytes: float | None
    memory_limit_bytes: float | None
    sent_bytes_per_second: float | None
    received_bytes_per_second: float | None

    @property
    def memory_ratio(self) -> float | None:
        """Used / existing memory."""
        if not self.memory_limit_bytes or self.memory_used_bytes is None:
            return None
        return self.memory_used_bytes / self.memory_limit_bytes


def read_gpus(store: Store, span: Span) -> tuple[Gpu, ...]:
    """Read the GPUs of a deployment, in the order of their ranks.

    Raises:
        StoreError: the store cannot answer.
    """
    rows = store.query("gpu", **span.params()).to_pylist()
    seconds = max(span.seconds, 1.0)
    return tuple(
        Gpu(
            *(row["ep_group"], row["ep_rank"], row["host"], row["gpu"]),
            *(row["utilization"], row["memory_used_bytes"], row["memory_limit_bytes"] or None),
            _per_second(row["sent_bytes"], seconds),
            _per_second(row["received_bytes"], seconds),
        )
        for row in rows
    )


def _per_second(total: float | None, seconds: float) -> float | None:
    return None if total is None else total / seconds
