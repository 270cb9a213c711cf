"""What processes without experts report: the scheduler the queue and caches, the front end the requests."""

from __future__ import annotations

from typing import Final

import numpy as np

from moescope.collector.recorder import Meter
from moescope.collector.requests import FinishedRequest, RequestMetrics
from moescope.schemas import metrics
from moescope.schemas.attributes import RESULT, CacheResult, Phase
from moescope.simulator.group_window import GroupWindow
from moescope.simulator.trace import CACHE_BLOCK_TOKENS

_SPREAD: Final = (0.9, 0.97, 1.03, 1.1)
"""Equally likely multiples of a mean gap between two tokens."""


def record_scheduler(meter: Meter, window: GroupWindow) -> None:
    """Report one group's queue and prefix cache."""
    started = window.flow.started
    is_whole = started.prompt - started.cached <= CACHE_BLOCK_TOKENS  # as collector/prefix_cache.py has it
    cached, hit = int(started.cached.sum()), int(started.cached[is_whole].sum())
    for result, tokens in (
        (CacheResult.HIT, hit),
        (CacheResult.PARTIAL_HIT, cached - hit),
        (CacheResult.MISS, int(started.prompt.sum()) - cached),
    ):
        meter.add(metrics.PREFIX_CACHE_TOKENS, tokens, {RESULT: result.value})
    meter.set_state(metrics.REQUESTS_RUNNING, window.running)
    meter.set_state(metrics.REQUESTS_WAITING, window.waiting)


def record_requests(requests: RequestMetrics, window: GroupWindow, rng: np.random.Generator) -> None:
    """Report first tokens, gaps and finished requests of one group."""
    first = window.taken_over
    for seconds in (first.first_token - first.arrival).tolist():
        requests.first_token(seconds)
    for gap_seconds, times in _gaps(window, rng):
        requests.next_tokens(gap_seconds, times)
    finished = window.flow.finished
    for duration, ttft, output, queue in zip(
        (window.flow.finished_at - finished.arrival).tolist(),
        (finished.first_token - finished.arrival).tolist(),
        finished.output.tolist(),
        (finished.started - finished.arrival).tolist(),
        strict=True,
    ):
        requests.finished(FinishedRequest(duration, ttft, output, max(queue, 0.0)))


def _gaps(window: GroupWindow, rng: np.random.Generator) -> list[tuple[float, int]]:
    """Gaps between tokens: most are one pass, some have a prefill chunk in between; exact in number."""
    tokens = int(window.flow.decode_tokens.sum())
    prefill, decode = (
        next(p for p in window.phases if p.phase is phase) for phase in (Phase.PREFILL, Phase.DECODE)
    )
    short, mean = decode.step.total, window.flow.seconds_per_decode_token
    chance = min((mean - short) / prefill.step.total, 1.0)
    late = int(rng.binomial(tokens, chance))
    longer = short + (mean - short) / max(chance, 1e-9)
    gaps = []
    for gap, count in ((short, tokens - late), (longer, late)):
        parts = rng.multinomial(count, np.full(len(_SPREAD), 1 / len(_SPREAD)))
        gaps += [(gap * times, int(part)) for times, part in zip(_SPREAD, parts, strict=True) if part]
    return gaps
