"""The simulated ranks: each has the recorder, reporter and exporter that an engine has.

Only the clock differs. A simulated window is closed when the simulation says so, which lets a backfill run
through hours in seconds.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from moescope import __version__
from moescope.collector.expert_load import NumpyExpertCounter
from moescope.collector.live_recorder import LiveRecorder
from moescope.exporters.otlp import OtlpExporter
from moescope.exporters.otlp_config import OtlpConfig
from moescope.schemas.attributes import Phase
from moescope.schemas.identity import EngineIdentity
from moescope.schemas.records import IntArray
from moescope.schemas.settings import Settings
from moescope.schemas.topology import ModelShape, RankGrid
from moescope.simulator.expert_load import HotExpert, Scenario, SimulatedExpertLoad, plant_hot_expert

_NS: Final = 1_000_000_000
_EXPORT_THREADS: Final = 64
"""Ranks that hand over at once, as engines do: the server stores together what arrives together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """What is simulated.

    ``tensor_parallel`` ranks compute the same tokens and only the first of them counts, as in an engine;
    every rank reports which experts it holds.
    """

    shape: ModelShape
    ranks: int = 8
    tensor_parallel: int = 1
    service: str = ""
    seed: int = 0
    scenarios: tuple[Scenario, ...] = ()
    prefill_tokens_per_second: float = 1500.0
    decode_tokens_per_second: float = 500.0

    @property
    def tokens_per_second(self) -> Mapping[Phase, float]:
        """Token rows per second of a rank that counts, by phase."""
        return {Phase.PREFILL: self.prefill_tokens_per_second, Phase.DECODE: self.decode_tokens_per_second}

    @property
    def hot_experts(self) -> tuple[HotExpert, ...]:
        """What the scenarios plant."""
        if Scenario.HOT_EXPERT in self.scenarios:
            return (plant_hot_expert(self.shape, ranks=self.ranks),)
        return ()


class Truth:
    """Exactly what was emitted, for reconciliation."""

    def __init__(self, shape: ModelShape) -> None:
        self._shape = shape
        size = (shape.num_moe_layers, shape.num_experts)
        self._counts: dict[Phase, IntArray] = {phase: np.zeros(size, dtype=np.int64) for phase in Phase}

    def add(self, phase: Phase, tokens_per_layer_expert: IntArray) -> None:
        """Add what one rank recorded."""
        self._counts[phase] += tokens_per_layer_expert

    def total(self) -> int:
        """Assignments of all layers and phases."""
        return sum(int(counts.sum()) for counts in self._counts.values())

    def write(self, path: Path) -> None:
        """Write ``{"layers": […], "phases": {"prefill": [[…]], "decode": [[…]]}}``."""
        document = {
            "layers": list(self._shape.moe_layers),
            "phases": {phase.value: counts.tolist() for phase, counts in self._counts.items()},
        }
        path.write_text(json.dumps(document), encoding="utf-8")


class Fleet:
    """Simulated ranks that report to one endpoint.

    Args:
        plan: what is simulated.
        config: where OTLP goes.
        settings: time-outs of the recorders.
    """

    def __init__(self, plan: FleetPlan, config: OtlpConfig, settings: Settings) -> None:
        self.plan = plan
        self.truth = Truth(plan.shape)
        self._load = SimulatedExpertLoad(plan.shape, plan.seed, plan.hot_experts)
        self._config = config
        self.settings = settings
        self._now_ns = time.time_ns()
        self._recorders: list[LiveRecorder] = []
        self._pool = ThreadPoolExecutor(_EXPORT_THREADS, thread_name_prefix="moescope-simulator")

    def backfill(self, span_seconds: float, interval_seconds: float) -> Iterator[bool]:
        """Emit the past ``span_seconds``; after each window, yield whether all of it was acknowledged."""
        interval_ns = round(interval_seconds * _NS)
        windows = round(span_seconds / interval_seconds)
        end_ns = time.time_ns() // interval_ns * interval_ns
        self._begin(end_ns - windows * interval_ns)
        for _ in range(windows):
            yield self._emit(self._now_ns + interval_ns)

    def catch_up(self, interval_seconds: float, stop: threading.Event) -> Iterator[bool]:
        """Emit, at once, what lies between the end of a backfill and now, in windows of up to a minute."""
        interval_ns = round(interval_seconds * _NS)
        while (
            self._recorders and not stop.is_set() and (now_ns := time.time_ns()) - self._now_ns >= interval_ns
        ):
            yield self._emit(min(now_ns, self._now_ns + 60 * _NS))

    def run(self, windows: int | None, interval_seconds: float, stop: threading.Event) -> Iterator[bool]:
        """Emit windows in real time, for ever if None; after each, yield whether all was acknowledged.

        A window is emitted whole or not at all: ``stop`` is looked at between windows.
        """
        interval_ns = round(interval_seconds * _NS)
        self._begin(time.time_ns())
        while windows is None or windows > 0:
            end_ns = self._now_ns + interval_ns
            if stop.wait(max(0.0, (end_ns - time.time_ns()) / _NS)):
                return
            yield self._emit(end_ns)
            windows = None if windows is None else windows - 1

    def close(self, timeout_seconds: float) -> bool:
        """Hand over what is left; False where it was not acknowledged in time."""
        deadline = time.monotonic() + timeout_seconds

        def finish(recorder: LiveRecorder) -> bool:
            return recorder.close(max(1.0, deadline - time.monotonic()))

        self._now_ns += 1
        is_complete = all(list(self._pool.map(finish, self._recorders)))
        self._pool.shutdown()
        return is_complete

    def _begin(self, start_ns: int) -> None:
        """Start the ranks at ``start_ns``, unless a backfill already did: then its end is the start."""
        if not self._recorders:
            self._now_ns = start_ns
            self._recorders = [self._recorder(rank) for rank in range(self.plan.ranks)]

    def _emit(self, end_ns: int) -> bool:
        seconds = (end_ns - self._now_ns) / _NS
        self._load.advance(seconds)
        self._now_ns = end_ns
        is_complete = True
        for counts_by_phase, is_delivered in self._pool.map(
            lambda rank: self._emit_rank(rank, seconds), range(self.plan.ranks)
        ):
            is_complete &= is_delivered
            for phase, counts in counts_by_phase.items():
                self.truth.add(phase, counts)
        return is_complete

    def _emit_rank(self, rank: int, seconds: float) -> tuple[dict[Phase, IntArray], bool]:
        recorder = self._recorders[rank]
        counts_by_phase: dict[Phase, IntArray] = {}
        if rank % self.plan.tensor_parallel == 0:
            for phase, rate in self.plan.tokens_per_second.items():
                tokens = round(rate * seconds)
                counts_by_phase[phase] = self._load.draw(rank, phase, tokens)
                recorder.add_counts(phase, tokens, counts_by_phase[phase])
        return counts_by_phase, recorder.flush()

    def _recorder(self, rank: int) -> LiveRecorder:
        plan = self.plan
        identity = EngineIdentity(
            plan.service or plan.shape.name,
            plan.shape,
            RankGrid(self.settings.ep_group, rank, plan.ranks),
            engine="simulator",
            engine_version=__version__,
            host=f"simulated-node-{rank // 8}",
        )
        return LiveRecorder(
            identity,
            NumpyExpertCounter(plan.shape.num_moe_layers, plan.shape.num_experts),
            lambda who: OtlpExporter(who, self._config, version=__version__),
            self.settings,
            clock_ns=lambda: self._now_ns,
        )
