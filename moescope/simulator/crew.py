"""The processes of one EP group: its ranks, its scheduler, its front end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from moescope import __version__
from moescope.collector.expert_load import NumpyExpertCounter
from moescope.collector.live_recorder import LiveRecorder
from moescope.collector.process_recorder import ProcessRecorder
from moescope.collector.requests import RequestMetrics
from moescope.exporters.otlp import OtlpExporter
from moescope.exporters.otlp_config import OtlpConfig
from moescope.schemas.attributes import Component, Role
from moescope.schemas.identity import EngineIdentity, Identity, ProcessIdentity
from moescope.schemas.settings import Settings
from moescope.schemas.topology import RankGrid
from moescope.simulator.front import note_requests, record_requests, record_scheduler
from moescope.simulator.group import SimulatedGroup
from moescope.simulator.group_window import GroupWindow
from moescope.simulator.process import SimulatedProcess
from moescope.simulator.rank import GPUS_PER_NODE, record_rank
from moescope.simulator.scenarios import (
    DEAD_RANK,
    DUPLICATE_RANKS,
    SILENT_RANK,
    SKEW_SECONDS,
    SKEWED_RANK,
    Scenario,
    rank_in,
)
from moescope.simulator.truth import Truth

_ENGINE = "simulator"


class Crew:
    """The processes of one EP group.

    Args:
        group: what they belong to.
        truth: where what they report is noted.
        config: where OTLP goes.
        settings: time-outs of the recorders, and the latency contract.
        now_ns: the simulated time.
    """

    def __init__(
        self,
        group: SimulatedGroup,
        truth: Truth,
        config: OtlpConfig,
        settings: Settings,
        now_ns: Callable[[], int],
    ) -> None:
        self.group = group
        self._truth = truth
        self._config = config
        self._settings = settings
        self._has_duplicate = False
        self._rng = np.random.default_rng([group.plan.seed, 4, group.ordinal])
        self._ranks = [
            SimulatedProcess(self._rank_opener(rank), now_ns, truth.ledger(group.name, Component.RANK, rank))
            for rank in range(group.ranks)
        ]
        self._scheduler, self._frontend = (
            SimulatedProcess(self._process_opener(component), now_ns, truth.ledger(group.name, component, 0))
            for component in (Component.SCHEDULER, Component.FRONTEND)
        )

    def processes(self) -> Iterator[SimulatedProcess[Any]]:
        """All of them."""
        yield from self._ranks
        yield self._scheduler
        yield self._frontend

    def set_up(self, now_active: frozenset[Scenario]) -> None:
        """Do to the processes what the scenarios do, before a window; in the first group only."""
        if self.group.ordinal:
            return
        silent = {
            rank_in(rank, self.group.ranks)
            for scenario, rank in ((Scenario.DEAD_RANK, DEAD_RANK), (Scenario.SILENT_RANK, SILENT_RANK))
            if scenario in now_active
        }
        for rank, process in enumerate(self._ranks):
            process.set_reporting(rank not in silent)
        skewed = self._ranks[rank_in(SKEWED_RANK, self.group.ranks)]
        skewed.skew_seconds = SKEW_SECONDS if Scenario.SKEWED_CLOCK in now_active else 0
        self._duplicate(is_on=Scenario.DUPLICATE_INSTANCE in now_active)

    def reports(self, window: GroupWindow) -> list[Callable[[float], bool]]:
        """What the processes do at the end of a window: each takes a time-out and says if all arrived."""
        calls: list[Callable[[float], bool]] = [
            partial(self._report_rank, rank, window)
            for rank, process in enumerate(self._ranks)
            if process.is_reporting
        ]
        calls.append(partial(self._report_scheduler, window))
        if self.group.role is not Role.PREFILL:
            calls.append(partial(self._report_requests, window))
        return calls

    def note(self, window: GroupWindow) -> None:
        """Add to the truth what it does not learn from the meters: expert counts, and the requests' ends."""
        for phase in window.phases:
            for rank, counts in phase.counts.items():
                if self._ranks[rank].is_reporting:
                    self._truth.add_experts(self.group.name, phase.phase, counts)
        if self.group.role is not Role.PREFILL:
            note_requests(self._truth.requests[self.group.name], window, self._settings)
        self._truth.lost[self.group.name] += window.lost
        self._truth.turned_away[self.group.name] += window.flow.turned_away

    def _report_rank(self, rank: int, window: GroupWindow, timeout_seconds: float) -> bool:
        process = self._ranks[rank]
        if rank % self.group.plan.tensor_parallel == 0:
            engine = rank // self.group.plan.tensor_parallel
            for phase in window.phases:
                if rank in phase.counts:
                    tokens = int(phase.tokens[engine])
                    process.recorder.add_counts(phase.phase, tokens, phase.counts[rank])
                    process.meter.note_tokens(phase.phase, tokens)
        record_rank(process.meter, self.group, window, rank, is_fresh=process.is_fresh)
        return process.flush(timeout_seconds)

    def _report_scheduler(self, window: GroupWindow, timeout_seconds: float) -> bool:
        record_scheduler(self._scheduler.meter, window)
        return self._scheduler.flush(timeout_seconds)

    def _report_requests(self, window: GroupWindow, timeout_seconds: float) -> bool:
        process = self._frontend
        requests = RequestMetrics(
            process.meter, model=self.group.shape.name, provider=_ENGINE, settings=self._settings
        )
        record_requests(requests, window, self._rng)
        return process.flush(timeout_seconds)

    def _duplicate(self, *, is_on: bool) -> None:
        """One rank starts again under the instance id of another, and later as itself."""
        first, second = (self._ranks[rank_in(rank, self.group.ranks)] for rank in DUPLICATE_RANKS)
        if is_on != self._has_duplicate and first is not second and second.is_reporting:
            second.restart(first.instance if is_on else None)
            self._has_duplicate = is_on

    def _rank_opener(self, rank: int) -> Callable[[str, Callable[[], int]], LiveRecorder]:
        group, shape = self.group, self.group.shape

        def open_recorder(instance: str, clock_ns: Callable[[], int]) -> LiveRecorder:
            identity = EngineIdentity(
                group.plan.service_name,
                shape,
                RankGrid(group.name, rank, group.ranks),
                engine=_ENGINE,
                engine_version=__version__,
                role=group.role,
                instance=instance,
                host=self._host(rank),
            )
            counter = NumpyExpertCounter(shape.num_moe_layers, shape.num_experts)
            return LiveRecorder(
                identity, counter, self._exporter, self._settings, group.placement, clock_ns=clock_ns
            )

        return open_recorder

    def _process_opener(self, component: Component) -> Callable[[str, Callable[[], int]], ProcessRecorder]:
        group = self.group

        def open_recorder(instance: str, clock_ns: Callable[[], int]) -> ProcessRecorder:
            identity = ProcessIdentity(
                group.plan.service_name,
                component,
                group.shape.name,
                RankGrid(group.name, 0, group.ranks),
                engine=_ENGINE,
                engine_version=__version__,
                role=group.role,
                instance=instance,
                host=self._host(0),
            )
            return ProcessRecorder(identity, self._exporter, self._settings, clock_ns=clock_ns)

        return open_recorder

    def _exporter(self, identity: Identity) -> OtlpExporter:
        return OtlpExporter(identity, self._config, version=__version__)

    def _host(self, rank: int) -> str:
        node = (self.group.ordinal * self.group.ranks + rank) // GPUS_PER_NODE
        return f"simulated-node-{node}"
