"""How many prompt tokens the prefix cache spared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis.coverage import read_coverage
from moescope.analysis.expert_load import TimeArray
from moescope.analysis.frozen import lock, locked_int64
from moescope.analysis.span import Span
from moescope.analysis.store import Store, column_as_array
from moescope.schemas.attributes import CacheResult
from moescope.schemas.records import FloatArray, IntArray

RATIO_FORMULA: Final = "(hit + partial hit) / looked up"


@dataclass(frozen=True, slots=True)
class PrefixCache:
    """Prompt tokens looked up, over time. Arrays are ``[steps]``.

    Attributes:
        times: datetime64[ms], UTC, starts of the steps.
        hit, partial_hit: int64, tokens found, of prompts that were found whole and of those that were not.
        miss: int64, tokens not found.
        seconds: float64, how much of each step the data covers.
    """

    times: TimeArray
    hit: IntArray
    partial_hit: IntArray
    miss: IntArray
    seconds: FloatArray

    @property
    def looked_up(self) -> int:
        """Prompt tokens looked up over the whole span."""
        return int(self.hit.sum() + self.partial_hit.sum() + self.miss.sum())

    @property
    def per_second(self) -> dict[CacheResult, FloatArray]:
        """Tokens a second by what the cache answered: float64 ``[steps]``."""
        tokens = {
            CacheResult.HIT: self.hit,
            CacheResult.PARTIAL_HIT: self.partial_hit,
            CacheResult.MISS: self.miss,
        }
        return {result: counts / self.seconds for result, counts in tokens.items()}

    @property
    def ratio(self) -> float | None:
        """Tokens found of all looked up, over the whole span; None when none were."""
        found = int(self.hit.sum() + self.partial_hit.sum())
        return found / self.looked_up if self.looked_up else None

    @property
    def ratio_over_time(self) -> FloatArray:
        """Tokens found of all looked up: float64 ``[steps]``, NaN where none were."""
        found = self.hit + self.partial_hit
        total = found + self.miss
        ratio = np.full(len(self.times), np.nan)
        np.divide(found, total, out=ratio, where=total > 0)
        return ratio


def read_prefix_cache(store: Store, span: Span) -> PrefixCache:
    """Read what the prefix cache answered.

    Raises:
        StoreError: the store cannot answer.
    """
    table = store.query("prefix_cache", step_seconds=span.step_seconds, **span.params())
    times = column_as_array(table, "time_ms").astype("datetime64[ms]")
    names = ("hit_tokens", "partial_hit_tokens", "miss_tokens")
    hit, partial_hit, miss = (locked_int64(column_as_array(table, name)) for name in names)
    seconds = lock(read_coverage(store, span).seconds_of(times))
    return PrefixCache(lock(times), hit, partial_hit, miss, seconds)
