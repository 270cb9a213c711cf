"""A simulated fleet: EP groups whose processes report to one endpoint, window by window.

Only the clock differs from an engine's. A simulated window is closed when the simulation says so, which lets
a backfill run through hours in seconds.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

from moescope.exporters.otlp_config import OtlpConfig
from moescope.schemas.attributes import Role
from moescope.schemas.settings import Settings
from moescope.simulator.crew import Crew
from moescope.simulator.group import SimulatedGroup
from moescope.simulator.group_window import GroupWindow
from moescope.simulator.plan import FleetPlan
from moescope.simulator.requests import Requests
from moescope.simulator.scenarios import Scenario, active
from moescope.simulator.truth import Truth
from moescope.simulator.truth_file import write_truth

_NS: Final = 1_000_000_000
_EXPORT_THREADS: Final = 64
"""Processes that hand over at once, as engines do: the server stores together what arrives together."""
_PATIENCE_SECONDS: Final = 60.0
"""How long a window of a backfill waits for an endpoint that has answered before: it is only busy."""
_LONGEST_CATCH_UP_SECONDS: Final = 60


class Fleet:
    """Simulated processes that report to one endpoint.

    Args:
        plan: what is simulated.
        config: where OTLP goes.
        settings: time-outs of the recorders, and the latency contract.
    """

    def __init__(self, plan: FleetPlan, config: OtlpConfig, settings: Settings) -> None:
        self.plan = plan
        self.truth = Truth(plan.shape)
        self.settings = settings
        # A whole fleet on one machine: a request that waits for the other ranks' is not lost, and sending it
        # again would only make the endpoint busier.
        self._config = replace(config, timeout_seconds=max(config.timeout_seconds, _PATIENCE_SECONDS))
        self._now_ns = self._start_ns = time.time_ns()
        self._groups = [
            SimulatedGroup(plan, ordinal, settings.ep_group if plan.ep_groups == 1 else str(ordinal))
            for ordinal in range(plan.ep_groups)
        ]
        self._crews: list[Crew] = []
        self._export_pool = ThreadPoolExecutor(_EXPORT_THREADS, thread_name_prefix="moescope-simulator")
        self._draw_pool = ThreadPoolExecutor(
            len(os.sched_getaffinity(0)), thread_name_prefix="moescope-router"
        )
        self._is_answering = True

    def backfill(self, span_seconds: float, interval_seconds: float) -> Iterator[bool]:
        """Emit the past ``span_seconds``; after each window, yield whether all of it was acknowledged."""
        interval_ns = round(interval_seconds * _NS)
        windows = round(span_seconds / interval_seconds)
        end_ns = time.time_ns() // interval_ns * interval_ns
        self._begin(end_ns - windows * interval_ns)
        for _ in range(windows):
            patience = _PATIENCE_SECONDS if self._is_answering else self.settings.flush_timeout_seconds
            self._is_answering = self._emit(self._now_ns + interval_ns, patience)
            yield self._is_answering

    def catch_up(self, interval_seconds: float, stop: threading.Event) -> Iterator[bool]:
        """Emit, at once, what lies between the end of a backfill and now, in windows of up to a minute.

        It ends where a window takes about as long as what is left of the past: waiting for less is in vain.
        """
        interval_ns = round(interval_seconds * _NS)
        spent_ns = 0
        while self._crews and not stop.is_set():
            begun_ns = time.time_ns()
            if begun_ns - self._now_ns < max(interval_ns, 2 * spent_ns):
                return
            yield self._emit(min(begun_ns, self._now_ns + _LONGEST_CATCH_UP_SECONDS * _NS))
            spent_ns = time.time_ns() - begun_ns

    def run(
        self, windows: int | None, interval_seconds: float, stop: threading.Event, *, speed: float = 1.0
    ) -> Iterator[bool]:
        """Emit windows in real time, for ever if None; after each, yield whether all was acknowledged.

        With a ``speed`` above 1 a window takes so many times less than its length; the run begins so far in
        the past that it ends now. A window is emitted whole or not at all: ``stop`` is looked at between.
        """
        interval_ns = round(interval_seconds * _NS)
        begun_ns = time.time_ns()
        ahead_ns = round((windows or 0) * interval_ns * (1 - 1 / speed))
        self._begin(begun_ns - ahead_ns)
        first_ns = self._now_ns
        while windows is None or windows > 0:
            intervals = 1
            if speed == 1:  # a window that comes late is longer, as an engine's is
                late_ns = max(time.time_ns() - self._now_ns - interval_ns, 0)
                intervals = min(1 + late_ns // interval_ns, windows or 1 + late_ns // interval_ns)
            end_ns = self._now_ns + intervals * interval_ns
            due_ns = end_ns if speed == 1 else begun_ns + round((end_ns - first_ns) / speed)
            if stop.wait(max(0.0, (due_ns - time.time_ns()) / _NS)):
                return
            yield self._emit(end_ns, max(self.settings.flush_timeout_seconds, interval_seconds))
            windows = None if windows is None else windows - intervals

    def close(self, timeout_seconds: float) -> bool:
        """Hand over what is left; False where it was not acknowledged in time."""
        deadline = time.monotonic() + timeout_seconds

        def finish(close: Callable[[float], bool]) -> bool:
            return close(max(1.0, deadline - time.monotonic()))

        self._now_ns += 1
        closes = [process.close for crew in self._crews for process in crew.processes()]
        is_complete = all(list(self._export_pool.map(finish, closes)))
        self._export_pool.shutdown()
        self._draw_pool.shutdown()
        return is_complete

    def write_truth(self, path: Path) -> None:
        """Write exactly what was emitted, see :func:`~moescope.simulator.truth_file.write_truth`."""
        write_truth(path, self.truth, self.plan, self._groups, (self._start_ns, self._now_ns))

    def _begin(self, start_ns: int) -> None:
        """Start the processes at ``start_ns``, unless a backfill already did: then its end is the start."""
        if not self._crews:
            self._now_ns = self._start_ns = start_ns
            for group in self._groups:
                group.warm_up()
            self._crews = [
                Crew(group, self.truth, self._config, self.settings, lambda: self._now_ns)
                for group in self._groups
            ]

    def _emit(self, end_ns: int, timeout_seconds: float | None = None) -> bool:
        start, end = ((ns - self._start_ns) / _NS for ns in (self._now_ns, end_ns))
        now_active = active(self.plan.schedule, start, end)
        for crew in self._crews:
            crew.set_up(now_active)
        self._now_ns = end_ns
        self.truth.windows += 1
        for scenario in now_active:
            self.truth.active_windows[scenario.value] += 1
        windows = self._advance(start, end, now_active)
        reports: list[Callable[[float], bool]] = []
        for crew, window in zip(self._crews, windows, strict=True):
            self._draw(crew.group, window)
            reports += crew.reports(window)
        timeout = self.settings.flush_timeout_seconds if timeout_seconds is None else timeout_seconds
        is_complete = all(list(self._export_pool.map(lambda report: report(timeout), reports)))
        for crew, window in zip(self._crews, windows, strict=True):
            crew.note(window)
        return is_complete

    def _advance(self, start: float, end: float, now_active: frozenset[Scenario]) -> list[GroupWindow]:
        """Advance the groups, those that prefill before those that decode what they prefilled."""
        windows: list[GroupWindow] = []
        decoders = [group for group in self._groups if group.role is Role.DECODE]
        handed_over = {group.name: Requests.none() for group in decoders}
        for group in self._groups:
            window = group.advance(start, end, now_active, handed_over.get(group.name))
            windows.append(window)
            if group.role is Role.PREFILL:
                taker = decoders[group.ordinal % len(decoders)]
                ready = group.hand_over(window.flow.prefilled, taker.engines)
                handed_over[taker.name] = handed_over[taker.name].and_(ready)
        return windows

    def _draw(self, group: SimulatedGroup, window: GroupWindow) -> None:
        for phase in window.phases:
            engines = [engine for engine, tokens in enumerate(phase.tokens) if tokens]
            drawn = list(self._draw_pool.map(lambda engine, of=phase: group.draw(of, engine), engines))
            group.settle(phase, drawn)
