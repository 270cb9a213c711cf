"""What SGLang's processes know of requests.

The front end knows latencies, prefix cache and goodput; each scheduler knows its queue and its load.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moescope.collector.prefix_cache import prefix_cache_tokens
from moescope.collector.recorder import Meter
from moescope.collector.requests import FinishedRequest, RequestMetrics
from moescope.schemas import metrics
from moescope.schemas.attributes import RESULT, Role


class FrontEnd:
    """Turns what SGLang's front end says of requests into metrics.

    Args:
        meter: where the numbers go.
        requests: what counts the latencies and the contract.
        page_tokens: tokens of one page of the prefix cache; None where there is no prefix cache.
        role: says which phases the engine serves now; SGLang may switch them while it serves. A prefill
            engine's requests end elsewhere, so only its prefix cache is told; a decode engine's prompts were
            looked up elsewhere, and SGLang hands it the same number of cached tokens once more.
    """

    def __init__(
        self, meter: Meter, requests: RequestMetrics, *, page_tokens: int | None, role: Callable[[], Role]
    ) -> None:
        self._meter = meter
        self._requests = requests
        self._page_tokens = page_tokens
        self._role = role

    def first_token(self, seconds: float) -> None:
        """See :class:`~moescope.collector.hooks.sglang_collectors.RequestListener`."""
        self._requests.first_token(seconds)

    def next_tokens(self, interval_seconds: float, tokens: int) -> None:
        """See :class:`~moescope.collector.hooks.sglang_collectors.RequestListener`."""
        if tokens > 0:
            self._requests.next_tokens(interval_seconds / tokens, tokens)

    def finished(
        self,
        duration_seconds: float,
        token_seconds: float | None,
        output_tokens: int,
        prompt_tokens: int,
        cached_tokens: int,
    ) -> None:
        """See :class:`~moescope.collector.hooks.sglang_collectors.RequestListener`."""
        role = self._role()
        if role is not Role.PREFILL:
            self._requests.finished(request_of(duration_seconds, token_seconds, output_tokens))
        if self._page_tokens is not None and role is not Role.DECODE:
            found = prefix_cache_tokens(prompt_tokens, cached_tokens, self._page_tokens)
            for result, tokens in found.items():
                self._meter.add(metrics.PREFIX_CACHE_TOKENS, tokens, {RESULT: result.value})

    def lose(self) -> None:
        """See :class:`~moescope.collector.hooks.sglang_collectors.RequestListener`. It says no states."""


class Scheduler:
    """Turns what one scheduler logs into metrics.

    Args:
        meter: where the numbers go.
        requests: names the model.
        take_stats: told of each state that is logged, and of None once nothing more is: the rank in the same
            process owns the caches.
    """

    def __init__(self, meter: Meter, requests: RequestMetrics, take_stats: Callable[[Any], None]) -> None:
        self._meter = meter
        self._requests = requests
        self._take_stats = take_stats

    def queued(self, seconds: float) -> None:
        """See :class:`~moescope.collector.hooks.sglang_collectors.SchedulerListener`."""
        self._meter.observe(metrics.REQUEST_QUEUE_DURATION, seconds, self._requests.attributes)

    def logged(self, stats: Any) -> None:
        """See :class:`~moescope.collector.hooks.sglang_collectors.SchedulerListener`."""
        self._meter.set_state(metrics.REQUESTS_RUNNING, stats.num_running_reqs.total)
        self._meter.set_state(metrics.REQUESTS_WAITING, stats.num_queue_reqs.total)
        self._take_stats(stats)

    def lose(self) -> None:
        """See :class:`~moescope.collector.hooks.sglang_collectors.SchedulerListener`."""
        self._meter.forget_state(metrics.REQUESTS_RUNNING)
        self._meter.forget_state(metrics.REQUESTS_WAITING)
        self._take_stats(None)


def request_of(duration_seconds: float, token_seconds: float | None, output_tokens: int) -> FinishedRequest:
    """A finished request, from what SGLang says at its end.

    It gives the time per output token, from which the first token's time follows, except for a request that
    was aborted: when that got its first token is not said again.
    """
    if output_tokens == 1:
        first: float | None = duration_seconds
    elif token_seconds is not None and output_tokens > 1:
        first = duration_seconds - token_seconds * (output_tokens - 1)
    else:
        first = None
    return FinishedRequest(duration_seconds, first, output_tokens)
