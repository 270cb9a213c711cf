"""The prefix cache, in a sentence for the Overview: it finds much less than before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.finding import Finding, Severity, Subject
from moescope.analysis.prefix_cache import RATIO_FORMULA, PrefixCache, read_prefix_cache
from moescope.analysis.recent import is_recent, recent_seconds
from moescope.analysis.span import Span
from moescope.analysis.store import Store
from moescope.schemas.settings import Settings

MIN_TOKENS: Final = 10_000
"""Prompt tokens that must have been looked up on either side: a few requests decide a ratio otherwise."""

MIN_RATIO: Final = 0.1
"""A cache that found less than this before has nothing to lose."""

_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class CacheFall:
    """What the cache found before and finds now, as parts of the prompt tokens that were looked up."""

    before: float
    now: float
    now_seconds: float
    before_seconds: float
    looked_up: int

    @property
    def times_work(self) -> float:
        """By what the prompt tokens to compute grow for the same prompts."""
        return (1 - self.now) / (1 - self.before)


def read_prefix_cache_findings(store: Store, span: Span, settings: Settings) -> tuple[Finding, ...]:
    """Read a span and as much before it, and say whether the cache finds much less now.

    Raises:
        StoreError: the store cannot answer.
    """
    longer = replace(span, start_ms=2 * span.start_ms - span.end_ms)
    fall = measure_cache_fall(read_prefix_cache(store, longer), longer, span.seconds, settings)
    return () if fall is None else tuple(describe_cache_fall(fall, span))


def measure_cache_fall(
    cache: PrefixCache, span: Span, window_seconds: float, settings: Settings
) -> CacheFall | None:
    """Compare the newest minutes with what lies before them; None where nothing fell or little is known."""
    recent = recent_seconds(window_seconds)
    is_now = is_recent(cache.times, span, recent)
    found, looked_up = cache.hit + cache.partial_hit, cache.hit + cache.partial_hit + cache.miss
    totals = [int(looked_up[side].sum()) for side in (~is_now, is_now)]
    if min(totals) < MIN_TOKENS:
        return None
    before, now = (
        int(found[side].sum()) / total for side, total in zip((~is_now, is_now), totals, strict=True)
    )
    if before < MIN_RATIO or now >= settings.prefix_cache_fall_ratio * before or before >= 1:
        return None
    first_ms = int(cache.times[0].astype("datetime64[ms]").astype(np.int64))
    before_seconds = (span.covered_ms - recent * _MS - first_ms) / _MS
    return CacheFall(before, now, recent, before_seconds, totals[1])


def describe_cache_fall(fall: CacheFall, span: Span) -> Iterator[Finding]:
    """Put it into words."""
    yield Finding(
        Severity.WARNING,
        f"The prefix cache finds {words.percent(fall.now)} of the prompt tokens; it was "
        f"{words.percent(fall.before)}.",
        f"The newest {words.duration(fall.now_seconds)} ({words.compact(fall.looked_up)} tokens looked up) "
        f"against the {words.duration(fall.before_seconds)} before: {RATIO_FORMULA}. For the same prompts "
        f"prefill computes {fall.times_work:.1f} × as many tokens. Did prompts lose their common beginning, "
        "did routing stop to keep sessions together, or is the KV cache too small for them?",
        fall.before / max(fall.now, 0.01),
        span.service,
        span.ep_group or None,
        subject=Subject.MEMORY,
    )
