"""One EP group of a simulated fleet: its router, requests, passes and memory, window by window."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from moescope.schemas.attributes import Phase, Role
from moescope.schemas.records import FloatArray, IntArray
from moescope.simulator.caches import GroupCaches
from moescope.simulator.dispatch import wait_ns
from moescope.simulator.expert_load import SimulatedExpertLoad
from moescope.simulator.failover import failovers_by_rank
from moescope.simulator.group_window import GroupWindow
from moescope.simulator.memory import plan_memory
from moescope.simulator.phase_window import PhaseWindow, spread_steps
from moescope.simulator.placement import TokenSplit, place_with_redundancy
from moescope.simulator.plan import FleetPlan
from moescope.simulator.rank_io import distinct_tokens, make_traffic
from moescope.simulator.requests import FlowWindow, Pace, RequestFlow, Requests
from moescope.simulator.scenarios import (
    DEAD_RANK,
    KDA_CHECKPOINTS_PER_SECOND,
    KDA_RANK,
    SLOW_FACTOR,
    SLOW_RANK,
    Scenario,
    rank_in,
)
from moescope.simulator.serving import choose_device
from moescope.simulator.step_time import StepModel, StepTime
from moescope.simulator.trace import Trace, no_arrivals
from moescope.simulator.weather import Forecast

CHUNK_TOKENS: Final = 2048
"""Prompt tokens of one prefill pass of one engine."""
_BUSIEST_PREFILL: Final = 0.25
"""Share of the time that prefill takes in ordinary weather; fewer requests come where it would be more."""
_PREFILL_TOKENS_PER_REQUEST: Final = 1500.0
_KV_TRANSFER_BYTES_PER_SECOND: Final = 25e9
_JITTER_SECONDS: Final = 4e-6
_WARM_UP_SECONDS: Final = 20.0
_WARM_UPS: Final = 4


class SimulatedGroup:
    """One EP group. :meth:`advance`, then :meth:`draw` and :meth:`settle` for each phase, make one window.

    Args:
        plan: what is simulated.
        ordinal: which of the groups; what happens to ranks happens in the first.
        name: of the EP group.
    """

    def __init__(self, plan: FleetPlan, ordinal: int, name: str) -> None:
        self.plan, self.ordinal, self.name = plan, ordinal, name
        self.shape, self.facts, self.role = plan.shape, plan.facts, plan.role_of(ordinal)
        self.ranks, self.engines = plan.ranks, plan.ranks // plan.tensor_parallel
        self._load = SimulatedExpertLoad(plan.shape, plan.seed, plan.hot_experts, group=ordinal)
        self._load.is_hot = False
        self.placement = place_with_redundancy(
            plan.shape, plan.ranks, plan.redundant_experts, self._load.chances(Phase.DECODE)
        )
        slots = self.placement.slots_per_rank
        device = choose_device(plan.shape, plan.facts, slots=slots, tensor_parallel=plan.tensor_parallel)
        self.device = device
        self.memory = plan_memory(
            plan.shape,
            plan.facts,
            device,
            slots=slots,
            redundant_slots=plan.redundant_experts // plan.ranks,
            tensor_parallel=plan.tensor_parallel,
        )
        self._model = StepModel(plan.shape, plan.facts, device, slots, plan.tensor_parallel)
        self.is_alive: npt.NDArray[np.bool_] = np.ones(plan.ranks, dtype=np.bool_)
        self._split = TokenSplit(self.placement, self.is_alive)
        self._slowness: FloatArray = np.ones(plan.ranks)
        self._rng = np.random.default_rng([plan.seed, 2, ordinal])
        self._jitter = self._rng.gamma(4, _JITTER_SECONDS / 4, plan.ranks)
        self._prefill_share: FloatArray = np.full(self.engines, _BUSIEST_PREFILL)
        self._caches = GroupCaches(self.memory, self.engines)
        self._forecast = Forecast()
        self.flow = RequestFlow(self.engines)
        self._trace = Trace(plan.seed, ordinal, plan.requests_per_second * self._affordable())

    @property
    def serving_engines(self) -> IntArray:
        """Engines all of whose ranks are alive: int64."""
        return np.flatnonzero(self.is_alive.reshape(self.engines, -1).all(axis=1))

    def advance(
        self, start: float, end: float, active: frozenset[Scenario], handed_over: Requests | None = None
    ) -> GroupWindow:
        """Let requests arrive and be served until ``end``.

        Args:
            start: seconds since the start of the run.
            end: likewise.
            active: what goes wrong meanwhile.
            handed_over: requests that other groups prefilled, for a group that decodes.
        """
        lost = self._set_up(active, end - start)
        self._load.advance(end - start)
        prefill, decode = self._phase(Phase.PREFILL), self._phase(Phase.DECODE)
        pace = self._pace(prefill.step, decode.step)
        arrivals = no_arrivals()
        if self.role is not Role.DECODE:
            weather = self._forecast.weather(active, end - start)
            arrivals = self._trace.arrive(start, end, self.serving_engines, weather)
        flow = self.flow.prefill(arrivals, start, end, pace)
        self._prefill_share = flow.prefill_share
        taken_over = {Role.MIXED: flow.prefilled, Role.DECODE: handed_over}.get(self.role) or Requests.none()
        self.flow.decode(flow, taken_over, start, end, pace)
        prefill.tokens, decode.tokens = flow.prefill_tokens, flow.decode_tokens
        chunks = (-(-prefill.tokens // CHUNK_TOKENS)).max()
        steps = (np.full(self.engines, chunks), self._decode_steps(decode, flow, end - start))
        for phase, by_engine in zip((prefill, decode), steps, strict=True):
            phase.step_seconds = spread_steps(self._rng, phase.step.engines, by_engine)
            phase.steps = np.repeat(by_engine, self.plan.tensor_parallel)
            phase.time_calls()
        return self._window(start, end, [prefill, decode], flow=flow, taken_over=taken_over, lost=lost)

    def warm_up(self) -> None:
        """Serve for a while before the run begins, so that it begins in the middle of the day."""
        for turn in range(_WARM_UPS):
            start = (turn - _WARM_UPS) * _WARM_UP_SECONDS
            self.advance(start, start + _WARM_UP_SECONDS, frozenset())

    def hand_over(self, requests: Requests, engines: int) -> Requests:
        """The requests that this group prefilled, on their way to a group of so many engines."""
        tokens = requests.prompt
        bytes_ = tokens * self.facts.kv_bytes_per_token + self.facts.kda_state_bytes
        requests.engine = requests.engine % engines
        requests.ready = requests.first_token + bytes_ / _KV_TRANSFER_BYTES_PER_SECOND
        return requests

    def draw(
        self, phase: PhaseWindow, engine: int
    ) -> tuple[int, IntArray, IntArray, IntArray, dict[int, IntArray]]:
        """What the tokens of one engine chose.

        Returns:
            the rank that counts them, its counts ``[num_moe_layers, num_experts]``, its assignments and its
            tokens by peer ``[ep_size]``, and the failovers by the rank that served. Thread-safe.
        """
        rank = engine * self.plan.tensor_parallel
        counts = self._load.draw(rank, phase.phase, int(phase.tokens[engine]))
        assignments = self._split.per_rank(counts)
        tokens = distinct_tokens(assignments, phase.share, phase.reach, self.shape.top_k)
        return rank, counts, assignments.sum(axis=0), tokens, failovers_by_rank(self._split, counts)

    def settle(
        self, phase: PhaseWindow, drawn: list[tuple[int, IntArray, IntArray, IntArray, dict[int, IntArray]]]
    ) -> None:
        """Put together what the engines drew."""
        assignments = np.zeros((self.ranks, self.ranks), dtype=np.int64)
        tokens = np.zeros_like(assignments)
        for rank, counts, assigned, sent, failovers in drawn:
            phase.counts[rank], assignments[rank], tokens[rank] = counts, assigned, sent
            for server, served in failovers.items():
                phase.failovers[server] = phase.failovers.get(server, 0) + served
        phase.traffic = make_traffic(assignments, tokens, self.facts)

    def _set_up(self, active: frozenset[Scenario], seconds: float) -> int:
        """Do what the scenarios do; return how many requests die of it."""
        is_first = self.ordinal == 0
        self._load.is_hot = Scenario.HOT_EXPERT in active
        self._load.is_shifted = Scenario.TOPIC_SHIFT in active
        self._slowness[:] = 1.0
        if Scenario.SLOW_RANK in active and is_first:
            self._slowness[rank_in(SLOW_RANK, self.ranks)] = SLOW_FACTOR
        if Scenario.KDA_PRESSURE in active and self.memory.kda_slots and is_first:
            engine = rank_in(KDA_RANK, self.ranks) // self.plan.tensor_parallel
            self._caches.keep(engine, KDA_CHECKPOINTS_PER_SECOND * seconds)
        else:
            self._caches.release()
        dead = rank_in(DEAD_RANK, self.ranks)
        is_alive = not (Scenario.DEAD_RANK in active and is_first)
        return self._let_live(dead, is_alive=is_alive) if self.is_alive[dead] != is_alive else 0

    def _let_live(self, rank: int, *, is_alive: bool) -> int:
        self.is_alive = self.is_alive.copy()
        self.is_alive[rank] = is_alive
        self._split = TokenSplit(self.placement, self.is_alive)
        self._load.set_available(self._split.is_available)
        return 0 if is_alive else self.flow.leave(rank // self.plan.tensor_parallel, self.serving_engines)

    def _phase(self, phase: Phase) -> PhaseWindow:
        """A phase without tokens yet, its pass timed."""
        share, reach = self._split.per_rank_share(self._load.chances(phase))
        if phase is Phase.PREFILL:
            tokens = CHUNK_TOKENS * max(1.0, float(np.minimum(self._prefill_share, 1.0).sum()))
            per_engine = np.full(self.engines, float(CHUNK_TOKENS))
        else:
            running = np.bincount(self.flow.running.engine, minlength=self.engines)
            per_engine = np.maximum(running, 1.0)
            tokens = float(per_engine.sum())
        step = self._model.time(
            share, reach, tokens=tokens, tokens_per_engine=per_engine, slowness=self._slowness * self.is_alive
        )
        none = np.zeros(self.engines, dtype=np.int64)
        return PhaseWindow(phase, none, np.zeros(self.ranks, dtype=np.int64), step, share, reach, [])

    def _pace(self, prefill: StepTime, decode: StepTime) -> Pace:
        running = self.flow.running
        context = float((running.prompt + running.decoded).mean()) if len(running) else 0.0
        return Pace(
            seconds_per_prefill_token=prefill.engines / CHUNK_TOKENS,
            decode_step_seconds=decode.engines,
            shares_steps=self.role is Role.MIXED,
            seconds_between_starts=self.flow.hold_seconds / self._caches.room(context),
        )

    @staticmethod
    def _decode_steps(decode: PhaseWindow, flow: FlowWindow, seconds: float) -> IntArray:
        """Passes of each engine: int64 ``[engines]``; one without requests takes part with dummy rows."""
        steps: IntArray = np.maximum((seconds / flow.seconds_per_decode_token).astype(np.int64), 1)
        return np.minimum(steps, int(decode.tokens.max()))

    def _window(
        self,
        start: float,
        end: float,
        phases: list[PhaseWindow],
        *,
        flow: FlowWindow,
        taken_over: Requests,
        lost: int,
    ) -> GroupWindow:
        waits = [wait_ns(phase.step, phase.steps, self._jitter, self.is_alive) for phase in phases]
        return GroupWindow(
            start=start,
            end=end,
            phases=phases,
            flow=flow,
            taken_over=taken_over,
            wait={stage: waits[0][stage] + waits[1][stage] for stage in waits[0]},
            busy=self._busy(phases, end - start),
            cache=self._caches.close_window(self.flow, flow.started),
            running=int(self.flow.running_per_engine().sum()),
            waiting=self.flow.waiting(),
            lost=lost,
        )

    def _busy(self, phases: list[PhaseWindow], seconds: float) -> FloatArray:
        worked: FloatArray = np.zeros(self.ranks)
        for phase in phases:
            one_pass = phase.step.experts.sum(axis=0) + phase.step.dense * self.shape.num_layers
            worked += one_pass * phase.steps
        return np.minimum(worked / seconds, 1.0)

    def _affordable(self) -> float:
        """How much of the ordinary load this group can take: 1 or less."""
        pass_seconds = float(self._phase(Phase.PREFILL).step.engines.mean())
        busy = _PREFILL_TOKENS_PER_REQUEST * pass_seconds / CHUNK_TOKENS
        return min(1.0, _BUSIEST_PREFILL / (busy * self.plan.requests_per_second))
