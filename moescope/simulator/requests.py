"""What happens to requests: a queue before each engine, prefill in order, decode in a continuous batch.

One step of the flow is a window, for all requests of an EP group at once: prefill is a first-in-first-out
server per engine (Lindley's recursion), decode gives every running request a token per pass. Prefill chunks
delay the passes of the same engine. How long a pass takes comes from outside, see :mod:`step_time`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from moescope.schemas.records import FloatArray, IntArray
from moescope.simulator.trace import Arrivals, no_arrivals

BoolArray = npt.NDArray[np.bool_]

_APART: Final = 1e8
"""Seconds between the time lines of two engines that share one array."""
_LARGEST_PREFILL_SHARE: Final = 0.8
_GIVE_UP_SECONDS: Final = 120.0
"""Clients turn away from an engine with so much prefill work queued."""


@dataclass(slots=True)
class Requests:
    """Requests as columns, all ``[requests]``; a row is one request.

    Attributes:
        arrival: float64, seconds since the start of the run.
        engine: int64.
        prompt: int64, tokens.
        cached: int64, tokens that the prefix cache held.
        output: int64, tokens to generate.
        todo: int64, prompt tokens still to compute.
        started: float64, when prefill began; NaN before.
        first_token: float64, when prefill ended; NaN before.
        ready: float64, when it can decode: then, or once its cache has arrived at another group.
        decoded: int64, output tokens after the first.
        progress: float64, part of a token that is under way.
    """

    arrival: FloatArray
    engine: IntArray
    prompt: IntArray
    cached: IntArray
    output: IntArray
    todo: IntArray
    started: FloatArray
    first_token: FloatArray
    ready: FloatArray
    decoded: IntArray
    progress: FloatArray

    @classmethod
    def of(cls, arrivals: Arrivals) -> Self:
        """Requests that have just arrived."""
        count = len(arrivals.arrival)
        return cls(
            arrivals.arrival,
            arrivals.engine,
            arrivals.prompt,
            arrivals.cached,
            arrivals.output,
            arrivals.prompt - arrivals.cached,
            np.full(count, np.nan),
            np.full(count, np.nan),
            np.full(count, np.nan),
            np.zeros(count, dtype=np.int64),
            np.zeros(count),
        )

    @classmethod
    def none(cls) -> Self:
        """No requests."""
        return cls.of(no_arrivals())

    def __len__(self) -> int:
        return len(self.arrival)

    def where(self, chosen: BoolArray | IntArray) -> Self:
        """The chosen rows, in order."""
        return type(self)(*(getattr(self, item.name)[chosen] for item in fields(self)))

    def and_(self, more: Self) -> Self:
        """These and then those."""
        columns = ((getattr(self, item.name), getattr(more, item.name)) for item in fields(self))
        return type(self)(*(np.concatenate(pair) for pair in columns))


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the engines of a group work in a window; arrays are float64 ``[engines]``.

    Attributes:
        seconds_per_prefill_token: of each engine.
        decode_step_seconds: one pass over an engine's running requests.
        shares_steps: whether prefill and decode compete for the same ranks.
        seconds_between_starts: what the caches' room allows; 0 is no limit.
    """

    seconds_per_prefill_token: FloatArray
    decode_step_seconds: FloatArray
    shares_steps: bool
    seconds_between_starts: FloatArray


@dataclass(slots=True)
class FlowWindow:
    """What a window did, by engine: arrays are int64 ``[engines]`` where nothing else is said.

    Attributes:
        prefill_tokens: token rows computed.
        decode_tokens: token rows computed; a request's first token comes with its prefill.
        prefill_share: float64: part of the window that each engine spent on prefill.
        seconds_per_decode_token: float64: what a request of each engine waits for its next token.
        started: requests whose prefill began; their cache look-ups count now.
        prefilled: requests that got their first token.
        finished: requests that are over, and when: float64 ``[requests]``.
        turned_away: requests that nobody served.
    """

    prefill_tokens: IntArray
    decode_tokens: IntArray
    prefill_share: FloatArray
    seconds_per_decode_token: FloatArray
    started: Requests
    prefilled: Requests
    finished: Requests
    finished_at: FloatArray
    turned_away: int = 0


@dataclass(slots=True)
class RequestFlow:
    """Requests of one EP group, from window to window.

    Attributes:
        engines: data-parallel engines of the group.
        queued: requests whose prefill is not over, in the order of their engines and arrivals.
        running: requests that decode.
        hold_seconds: how long a request keeps its cache, on average.
    """

    engines: int
    queued: Requests = field(default_factory=Requests.none)
    running: Requests = field(default_factory=Requests.none)
    hold_seconds: float = 0.0

    def prefill(self, arrivals: Arrivals, start: float, end: float, pace: Pace) -> FlowWindow:
        """Take the arrivals in and compute prompts until the window ends. Then call :meth:`decode`."""
        queue = self.queued.and_(Requests.of(arrivals))
        queue = queue.where(np.lexsort((queue.arrival, np.isnan(queue.started), queue.engine)))
        service = np.maximum(
            queue.todo * pace.seconds_per_prefill_token[queue.engine],
            np.where(np.isnan(queue.started), pace.seconds_between_starts[queue.engine], 0.0),
        )
        done_at = _done_at(queue.engine, np.maximum(queue.arrival, start), service)
        begun_at = done_at - service
        stays = begun_at - np.maximum(queue.arrival, start) <= _GIVE_UP_SECONDS
        stays |= ~np.isnan(queue.started)
        turned_away = int((~stays).sum())
        if turned_away:  # those in front of them are not delayed by them
            queue, service = queue.where(stays), service[stays]
            done_at = _done_at(queue.engine, np.maximum(queue.arrival, start), service)
            begun_at = done_at - service
        is_done = done_at <= end
        part = np.clip((end - begun_at) / np.maximum(service, 1e-12), 0, 1)
        partly = np.minimum((queue.todo * part).astype(np.int64), np.maximum(queue.todo - 1, 0))
        computed = np.where(is_done, queue.todo, partly)
        is_new = np.isnan(queue.started) & (begun_at < end)
        queue.started = np.where(is_new, begun_at, queue.started)
        queue.todo = queue.todo - computed
        queue.first_token = queue.ready = np.where(is_done, done_at, np.nan)
        busy = np.bincount(
            queue.engine, np.minimum(done_at, end) - np.minimum(begun_at, end), minlength=self.engines
        )
        self.queued = queue.where(~is_done)
        return FlowWindow(
            prefill_tokens=_sums(queue.engine, computed, self.engines),
            decode_tokens=np.zeros(self.engines, dtype=np.int64),
            prefill_share=busy / (end - start),
            seconds_per_decode_token=pace.decode_step_seconds,
            started=queue.where(is_new),
            prefilled=queue.where(is_done),
            finished=Requests.none(),
            finished_at=np.empty(0),
            turned_away=turned_away,
        )

    def decode(self, window: FlowWindow, taken_over: Requests, start: float, end: float, pace: Pace) -> None:
        """Let the running requests and ``taken_over`` decode until the window ends; fills in ``window``."""
        share = np.minimum(window.prefill_share, _LARGEST_PREFILL_SHARE) * pace.shares_steps
        window.seconds_per_decode_token = pace.decode_step_seconds / (1 - share)
        running = self.running.and_(taken_over)
        token_seconds = window.seconds_per_decode_token[running.engine]
        begun = np.maximum(running.ready, start)
        possible = running.progress + np.maximum(end - begun, 0) / token_seconds
        left = running.output - 1 - running.decoded
        decoded = np.minimum(np.floor(possible).astype(np.int64), left)
        is_over = (decoded == left) & (running.ready <= end)
        finished_at = begun + (left - running.progress) * token_seconds
        running.progress = np.where(is_over, 0.0, possible - decoded)
        running.decoded = running.decoded + decoded
        window.decode_tokens = _sums(running.engine, decoded, self.engines)
        window.finished = running.where(is_over)
        window.finished_at = finished_at[is_over]
        self.running = running.where(~is_over)
        if len(window.finished):
            held = float((window.finished_at - window.finished.started).mean())
            self.hold_seconds += 0.5 * (held - self.hold_seconds)

    def leave(self, engine: int, others: IntArray) -> int:
        """Engine ``engine`` dies: its queue goes to the others, what it was decoding is lost.

        Returns:
            how many requests are lost.
        """
        lost = int((self.running.engine == engine).sum())
        self.running = self.running.where(self.running.engine != engine)
        moved = np.flatnonzero(self.queued.engine == engine)
        if len(others):
            self.queued.engine[moved] = others[np.arange(len(moved)) % len(others)]
            self.queued.todo[moved] = self.queued.prompt[moved]
            return lost
        self.queued = self.queued.where(self.queued.engine != engine)
        return lost + len(moved)

    def running_per_engine(self) -> IntArray:
        """Requests that hold a cache: int64 ``[engines]``."""
        in_prefill = self.queued.engine[~np.isnan(self.queued.started)]
        held = np.concatenate([self.running.engine, in_prefill])
        return np.bincount(held, minlength=self.engines).astype(np.int64)

    def waiting(self) -> int:
        """Requests whose prefill has not begun."""
        return int(np.isnan(self.queued.started).sum())

    def blocks_per_engine(self, block_tokens: int) -> IntArray:
        """KV cache blocks of the requests that hold a cache: int64 ``[engines]``."""
        context = self.running.prompt + 1 + self.running.decoded
        blocks = _sums(self.running.engine, -(-context // block_tokens), self.engines)
        begun = ~np.isnan(self.queued.started)
        context = (self.queued.prompt - self.queued.todo)[begun]
        return blocks + _sums(self.queued.engine[begun], -(-context // block_tokens), self.engines)


def _done_at(engine: IntArray, ready: FloatArray, service: FloatArray) -> FloatArray:
    """When each request of a first-in-first-out server is done; rows are sorted by engine and order.

    Lindley: done_i = S_i + max over j ≤ i of (ready_j − S_{j−1}), S being the running sum of the services.
    """
    work = np.cumsum(service)
    idle = ready - (work - service)
    apart = engine * _APART
    done: FloatArray = np.maximum.accumulate(idle + apart) - apart + work
    return done


def _sums(index: IntArray, values: IntArray, length: int) -> IntArray:
    """Whole sums by index: exact below 2^53."""
    return np.bincount(index, values, minlength=length).astype(np.int64)
