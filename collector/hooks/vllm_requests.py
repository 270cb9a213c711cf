"""What vLLM's front end knows of its requests: latencies, load, prefix cache, goodput.

vLLM hands every stat logger the numbers of each engine step, on its event loop: a logger that raises there
ends all requests. So whatever fails here is logged, and the front end serves on without telemetry. What
comes by token is only kept, and counted together: :data:`_GAPS_TO_KEEP` at once, and before each window.

Where prefill and decode are served by engines of their own both see each request, and it counts once: it
ends, and keeps its contract or not, in the decode engine; the prefix cache answers in the prefill engine. The
decode engine calls "cached" what was sent to it, or repeats the prefill engine's answer.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

import numpy as np

from moescope.collector.hooks import vllm_ranks
from moescope.collector.hooks.vllm_process import MakeProcessRecorder, identity_of
from moescope.collector.hooks.vllm_version import is_supported_version
from moescope.collector.prefix_cache import prefix_cache_tokens
from moescope.collector.process_recorder import ProcessRecorder
from moescope.collector.recorder import Meter
from moescope.collector.requests import FinishedRequest, RequestMetrics
from moescope.schemas import metrics
from moescope.schemas.attributes import RESULT, Component, Role
from moescope.schemas.settings import load_engine_settings

logger = logging.getLogger("moescope")

_GAPS_TO_KEEP: Final = 4096


class RequestWatch:
    """Follows the requests of one engine in one front-end process.

    Args:
        meter: where the numbers go.
        requests: what counts the latencies and the contract.
        block_tokens: tokens of one block of the prefix cache; None where there is no prefix cache.
        role: which part of a request this engine serves.
    """

    def __init__(
        self, meter: Meter, requests: RequestMetrics, *, block_tokens: int | None, role: Role = Role.MIXED
    ) -> None:
        self._meter = meter
        self._requests = requests
        self._block_tokens = block_tokens
        self._role = role
        self._running: int | None = None
        self._waiting = 0
        self._gaps_seconds: list[float] = []
        self._lock = threading.Lock()
        self._has_given_up = False
        meter.poll(self.look)

    def record(self, scheduler_stats: Any, iteration_stats: Any) -> None:
        """Take one engine step's numbers: vLLM's ``SchedulerStats`` and ``IterationStats``, or None."""
        if self._has_given_up:
            return
        try:
            # With several front ends only one of them hears of the scheduler, and each of its own requests.
            if scheduler_stats is not None:
                self._running = scheduler_stats.num_running_reqs
                self._waiting = scheduler_stats.num_waiting_reqs + scheduler_stats.num_skipped_waiting_reqs
            if iteration_stats is not None:
                self._record_requests(iteration_stats)
        except Exception:
            self._has_given_up = True
            logger.exception("moescope: requests are not measured any more; serving goes on")

    def look(self) -> None:
        """Hand over what was kept, before a window is closed."""
        if self._has_given_up:
            self._meter.forget_state(metrics.REQUESTS_RUNNING)
            self._meter.forget_state(metrics.REQUESTS_WAITING)
        elif self._running is not None:
            self._meter.set_state(metrics.REQUESTS_RUNNING, self._running)
            self._meter.set_state(metrics.REQUESTS_WAITING, self._waiting)
        with self._lock:
            self._count_gaps()

    def _record_requests(self, stats: Any) -> None:
        for seconds in stats.time_to_first_tokens_iter:
            self._requests.first_token(seconds)
        with self._lock:
            self._gaps_seconds.extend(stats.inter_token_latencies_iter)
            if len(self._gaps_seconds) >= _GAPS_TO_KEEP:
                self._count_gaps()
        for finished in stats.finished_requests:
            self._finish(finished)

    def _count_gaps(self) -> None:
        if not self._gaps_seconds:
            return
        gaps_seconds, self._gaps_seconds = np.asarray(self._gaps_seconds), []
        bounds = metrics.INTER_TOKEN_LATENCY.bounds
        bucket_counts = np.bincount(np.searchsorted(bounds, gaps_seconds), minlength=len(bounds) + 1)
        self._meter.add_distribution(
            metrics.INTER_TOKEN_LATENCY, bucket_counts, float(gaps_seconds.sum()), self._requests.attributes
        )

    def _finish(self, stats: Any) -> None:
        request = request_of(stats)
        if self._role is not Role.PREFILL:
            self._requests.finished(request)
        elif request.queue_seconds is not None:
            self._requests.queued(request.queue_seconds)
        was_scheduled = request.queue_seconds is not None
        if self._block_tokens is not None and was_scheduled and self._role is not Role.DECODE:
            found = prefix_cache_tokens(stats.num_prompt_tokens, stats.num_cached_tokens, self._block_tokens)
            for result, tokens in found.items():
                self._meter.add(metrics.PREFIX_CACHE_TOKENS, tokens, {RESULT: result.value})


def request_of(stats: Any) -> FinishedRequest:
    """A finished request, from vLLM's ``FinishedRequestStats``.

    The end is on the front end's clock, queue and decoding on the engine core's. What is not decoding is
    taken for the time to the first token, so that the time per output token is vLLM's own, except where it
    says 0 for a request of one token.
    """
    has_begun = stats.num_generation_tokens > 0
    return FinishedRequest(
        duration_seconds=stats.e2e_latency,
        first_token_seconds=stats.e2e_latency - stats.decode_time if has_begun else None,
        output_tokens=stats.num_generation_tokens,
        # One that ended in the queue was never scheduled: vLLM then subtracts from 0.
        queue_seconds=stats.queued_time if stats.queued_time >= 0 else None,
    )


def watch_requests(
    vllm_config: Any, dp_rank: int, make_process_recorder: MakeProcessRecorder
) -> RequestWatch | None:
    """Start to report the requests of one engine; None with a vLLM that the hook does not understand."""
    if not is_supported_version():
        return None
    settings = load_engine_settings()
    identity = identity_of(vllm_config, Component.FRONTEND, dp_rank=dp_rank, settings=settings)
    recorder = make_process_recorder(identity, settings=settings)
    requests = RequestMetrics(recorder, model=identity.model, provider=identity.engine, settings=settings)
    watch = RequestWatch(
        recorder, requests, block_tokens=_block_tokens(vllm_config), role=vllm_ranks.role_of(vllm_config)
    )
    if isinstance(recorder, ProcessRecorder):
        recorder.start()
    return watch


def _block_tokens(vllm_config: Any) -> int | None:
    cache, parallel = vllm_config.cache_config, vllm_config.parallel_config
    if not cache.enable_prefix_caching:
        return None
    shards = parallel.decode_context_parallel_size * parallel.prefill_context_parallel_size
    return int(cache.block_size) * int(shards)
