"""What requests feel, in sentences for the Overview: who missed the contract, and what they waited for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.distribution import Percentiles
from moescope.analysis.finding import Finding, Severity, Subject
from moescope.analysis.latency_report import LatencyAnswer, amount
from moescope.analysis.recent import is_recent, recent_seconds
from moescope.schemas import metrics
from moescope.schemas.metrics import Metric
from moescope.schemas.settings import Settings

MIN_REQUESTS: Final = 20
"""Below so many finished requests a missed one says little: 5 % of them is one."""

RISE_TIMES: Final = 2.0
"""Tokens that take this many times as long as before are worth a note."""

_NOTABLE_SHARE: Final = 0.02
"""Of the contract's limit: below, a rise is nobody's concern."""

_MINUTE: Final = 60
_QUEUE_SHARE: Final = 0.5
"""Part of the mean TTFT spent waiting from which the queue is what requests wait for."""


@dataclass(frozen=True, slots=True)
class Rise:
    """A latency's mean before and now, seconds; how long "now" is."""

    before: float
    now: float
    now_seconds: float

    @property
    def times(self) -> float:
        """How many times as long it takes now."""
        return self.now / self.before


def list_latency_findings(answer: LatencyAnswer, settings: Settings) -> Iterator[Finding]:
    """Say that too many requests missed the latency contract, or that tokens take much longer than before."""
    yield from _stopped(answer)
    good = answer.goodput
    if not good.misses_contract or good.good_share is None or good.requests < MIN_REQUESTS:
        yield from _slower(answer, settings)
        return
    missed = 1 - good.good_share
    said = [_against(answer, metric, name, limit) for metric, name, limit in _limits(settings)]
    yield Finding(
        Severity.PROBLEM,
        f"{words.percent(missed)} of {words.count(good.requests, 'request')} missed the latency contract"
        f"{_because(answer)}.",
        " ".join(
            [
                *(text for text in said if text),
                f"Up to {words.percent(settings.contract_missed_share)} may miss it.",
                *_queue(answer),
            ]
        ),
        1 + missed,
        answer.span.service,
        answer.span.ep_group or None,
        subject=Subject.LATENCY,
    )


def _stopped(answer: LatencyAnswer) -> Iterator[Finding]:
    """No request where there should have been many: at the rate of before, none is no chance."""
    steps, span = answer.goodput.steps, answer.span
    recent = recent_seconds(span.seconds)
    is_now = is_recent(steps.times, span, recent)
    before = int(steps.requests[~is_now].sum())
    a_second = before / max(span.seconds - recent, 1.0)
    running = answer.load.running
    if (
        steps.requests[is_now].sum()
        or a_second * recent < MIN_REQUESTS
        or (len(running) and running[-1] >= 1)
    ):
        return
    yield Finding(
        Severity.WARNING,
        f"No request in the newest {words.duration(recent)}; it was "
        f"{a_second * _MINUTE:.0f} a minute before.",
        "None finished and none runs. Was it drained, or does the router in front not reach it?",
        1.0,
        span.service,
        span.ep_group or None,
        subject=Subject.LATENCY,
    )


def _slower(answer: LatencyAnswer, settings: Settings) -> Iterator[Finding]:
    rises = [
        (rise.times, name, metric, rise, limit)
        for metric, name, limit in _limits(settings)
        if (rise := measure_rise(answer, metric)) is not None
        and rise.times >= RISE_TIMES
        and rise.now >= _NOTABLE_SHARE * limit
    ]
    if not rises:
        return
    times, name, metric, rise, limit = max(rises, key=lambda one: one[0])
    queue = measure_rise(answer, metrics.REQUEST_QUEUE_DURATION)
    waits = (
        ""
        if queue is None
        else f" In the queue for prefill requests wait {amount(metric, queue.now)}, "
        f"{amount(metric, queue.before)} before."
    )
    yield Finding(
        Severity.NOTE,
        f"{name} is {times:.1f} × what it was: {amount(metric, rise.now)} on average, "
        f"{amount(metric, rise.before)} before.",
        f"The newest {words.duration(rise.now_seconds)} against what lies before in the window.{waits} The "
        f"contract ({amount(metric, limit)}) still holds: more or longer prompts, or fewer hits in the "
        "prefix cache?",
        times,
        answer.span.service,
        answer.span.ep_group or None,
        subject=Subject.LATENCY,
    )


def _limits(settings: Settings) -> tuple[tuple[Metric, str, float], ...]:
    return (
        (metrics.TIME_TO_FIRST_TOKEN, "TTFT", settings.contract_ttft_seconds),
        (metrics.TIME_PER_OUTPUT_TOKEN, "TPOT", settings.contract_tpot_seconds),
    )


def measure_rise(answer: LatencyAnswer, metric: Metric) -> Rise | None:
    """Compare a latency's mean in the newest minutes with that of the rest of the span.

    None where one of the sides has fewer than :data:`MIN_REQUESTS` observations.
    """
    found = answer.requests.get(metric)
    if found is None:
        return None
    recent = recent_seconds(answer.span.seconds)
    is_now = is_recent(found.times, answer.span, recent)
    sides = []
    for side in (~is_now, is_now):
        observations = found.observations[side]
        if observations.sum() < MIN_REQUESTS:
            return None
        has_some = observations > 0
        sides.append(float(np.average(found.mean[side][has_some], weights=observations[has_some])))
    before, now = sides
    return Rise(before, now, recent) if before > 0 else None


def queue_share(answer: LatencyAnswer) -> float | None:
    """Part of the mean TTFT that requests waited before they were first scheduled; None where unknown."""
    ttft, queue = (
        _whole(answer, metric) for metric in (metrics.TIME_TO_FIRST_TOKEN, metrics.REQUEST_QUEUE_DURATION)
    )
    if ttft is None or queue is None or not ttft.mean > 0:
        return None
    return min(queue.mean / ttft.mean, 1.0)


def _because(answer: LatencyAnswer) -> str:
    share = queue_share(answer)
    return ": they wait in the queue for prefill" if share is not None and share >= _QUEUE_SHARE else ""


def _against(answer: LatencyAnswer, metric: Metric, name: str, limit: float) -> str:
    whole = _whole(answer, metric)
    if whole is None:
        return ""
    beyond = "more than " if whole.is_beyond(whole.p90) else ""
    return (
        f"{name}: {amount(metric, whole.p50)} at the median, {beyond}{amount(metric, whole.p90)} at p90, "
        f"the contract allows {amount(metric, limit)}."
    )


def _queue(answer: LatencyAnswer) -> Iterator[str]:
    share = queue_share(answer)
    if share is not None and share >= _QUEUE_SHARE:
        yield (
            f"{words.percent(share)} of the mean TTFT is waiting to be scheduled: prefill does not keep up. "
            "More prefill capacity, fewer or shorter prompts, or a better prefix-cache hit ratio would help."
        )
    waiting = answer.load.waiting
    if len(waiting) and waiting[-1] >= 1:
        yield f"{words.count(round(float(waiting[-1])), 'request')} waited at the end."


def _whole(answer: LatencyAnswer, metric: Metric) -> Percentiles | None:
    found = answer.requests.get(metric)
    return found.whole if found is not None and found.whole.observations else None
