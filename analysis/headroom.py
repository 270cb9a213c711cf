"""What still fits, in one number: how much of its fullest pool a deployment has left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from moescope.analysis import words
from moescope.analysis.memory import FullPool
from moescope.analysis.memory_forecast import PoolForecast
from moescope.analysis.memory_outlook_report import POOL_NAMES, context_label, name_of_pool, when_full
from moescope.analysis.memory_report import MemoryAnswer, read_memory_answer
from moescope.analysis.span import Span
from moescope.analysis.store import Store
from moescope.schemas.settings import Settings

_COLUMN: Final = 1
"""Of the contexts that are counted: a long document."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """What a deployment has left.

    Attributes:
        fullest: the fullest growing pool of all its ranks.
        ends_first: the pool that is full first at its growth; None where none grows steadily.
        fits: requests of ``context_tokens`` that still fit all engines together; None where one is unknown.
        is_full: whether a pool is full now.
    """

    fullest: FullPool
    ends_first: PoolForecast | None
    fits: int | None
    context_tokens: int
    is_full: bool

    @property
    def free_share(self) -> float:
        """Of the fullest pool's limit."""
        return max(1.0 - self.fullest.ratio, 0.0)

    def describe(self) -> str:
        """What the share is of, and what ends it: ``in the MLA KV cache of rank 3; full in 12–18 min``."""
        parts = [f"of {POOL_NAMES[self.fullest.pool]}, rank {self.fullest.rank}"]
        if self.ends_first is not None:
            parts.append(f"{name_of_pool(self.ends_first)} full {when_full(self.ends_first)}")
        elif self.fits is not None:
            many = words.count(self.fits, "request")
            parts.append(f"{many} of {context_label(self.context_tokens)} tokens fit")
        return "; ".join(parts)


def read_headroom(store: Store, spans: Sequence[Span], settings: Settings) -> Headroom | None:
    """Read what a deployment has left, from one span an EP group; None where no pool has a limit.

    Raises:
        StoreError: the store cannot answer.
    """
    return summarise_headroom([read_memory_answer(store, span, settings) for span in spans])


def summarise_headroom(answers: Sequence[MemoryAnswer]) -> Headroom | None:
    """Sum up the EP groups of a deployment: the fullest pool, the first to end, and all that fits."""
    limited = [answer for answer in answers if answer.pools.fullest is not None]
    pools = [answer.pools.fullest for answer in limited if answer.pools.fullest is not None]
    if not pools:
        return None
    forecasts = [forecast for answer in limited for forecast in answer.outlook.forecasts[:1]]
    counts = [answer.outlook.fits(_COLUMN) for answer in limited]
    known = [count for count in counts if count is not None]
    return Headroom(
        max(pools, key=lambda one: one.ratio),
        min(forecasts, key=lambda one: one.seconds, default=None),
        sum(known) if len(known) == len(counts) else None,
        limited[0].outlook.contexts[_COLUMN],
        any(answer.pools.full for answer in limited),
    )
