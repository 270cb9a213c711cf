"""What processes without experts report: the scheduler the queue and caches, the front end the requests."""

from __future__ import annotations

from typing import Final

import numpy as np

from moescope.collector.recorder import Meter
from moescope.collector.requests import FinishedRequest, RequestMetrics
from moescope.schemas import metrics
from moescope.schemas.attributes import RESULT, CacheResult, Phase
from moescope.schemas.settings import Settings
from moescope.simulator.group_window import GroupWindow
from moescope.simulator.trace import CACHE_BLOCK_TOKENS
from moescope.simulator.truth import RequestTruth

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


def note_requests(truth: RequestTruth, window: GroupWindow, settings: Settings) -> None:
    """Say what became of the requests of one group and window, without their metrics.

    TPOT is the time from the first token to the last over the tokens after the first: a request of one output
    token has none, and keeps the contract if that token was in time.
    """
    first, finished, ended = window.taken_over, window.flow.finished, window.flow.finished_at
    ttft, decoding = finished.first_token - finished.arrival, ended - finished.first_token
    has_more = finished.output > 1
    tpot = np.divide(decoding, finished.output - 1, out=np.zeros_like(decoding), where=has_more)
    is_good = (ttft <= settings.contract_ttft_seconds) & (tpot <= settings.contract_tpot_seconds)
    for name, seconds in (
        ("ttft", first.first_token - first.arrival),
        ("tpot", tpot[has_more]),
        ("queue", np.maximum(finished.started - finished.arrival, 0)),
        ("e2e", ended - finished.arrival),
    ):
        truth.add_latencies(name, seconds)
    for name, number in (
        ("requests", len(finished)),
        ("good_requests", is_good.sum()),
        ("output_tokens", finished.output.sum()),
        ("good_tokens", finished.output[is_good].sum()),
    ):
        truth.goodput[name] += int(number)


def _gaps(window: GroupWindow, rng: np.random.Generator) -> list[tuple[float, int]]:
    """Gaps between tokens: most are one pass, some have a prefill chunk in between; exact in number."""
    tokens = window.flow.decode_tokens
    prefill, decode = (
        next(p for p in window.phases if p.phase is phase) for phase in (Phase.PREFILL, Phase.DECODE)
    )
    short, mean = decode.step.engines, window.flow.seconds_per_decode_token
    chance = np.clip((mean - short) / prefill.step.engines, 0.0, 1.0)
    late = rng.binomial(tokens, chance)
    longer = short + (mean - short) / np.maximum(chance, 1e-9)
    gaps = []
    for gap, count in ((short, tokens - late), (longer, late)):
        parts = rng.multinomial(count, np.full(len(_SPREAD), 1 / len(_SPREAD)))
        seconds = gap[:, None] * np.asarray(_SPREAD)
        gaps += [
            (gap_seconds, times)
            for gap_seconds, times in zip(seconds.ravel().tolist(), parts.ravel().tolist(), strict=True)
            if times
        ]
    return gaps
