"""One window of an EP group, as its processes report it."""

from __future__ import annotations

from dataclasses import dataclass

from moescope.schemas.attributes import DispatchStage
from moescope.schemas.records import FloatArray, IntArray
from moescope.simulator.caches import CacheWindow
from moescope.simulator.phase_window import PhaseWindow
from moescope.simulator.requests import FlowWindow, Requests


@dataclass(slots=True)
class GroupWindow:
    """One window of an EP group.

    Attributes:
        start: seconds since the start of the run; ``end`` likewise.
        phases: what was computed.
        flow: what the requests did.
        taken_over: requests that began to decode here; their first token is told now.
        wait: int64 ``[ep_size, ep_size]`` by stage: nanoseconds that row waited for column.
        busy: float64 ``[ep_size]``: share of the window that each rank computed.
        cache: what the engines' caches hold at its end.
        running: requests that hold a cache; ``waiting``: those that do not yet.
        lost: requests that died with a rank.
    """

    start: float
    end: float
    phases: list[PhaseWindow]
    flow: FlowWindow
    taken_over: Requests
    wait: dict[DispatchStage, IntArray]
    busy: FloatArray
    cache: CacheWindow
    running: int
    waiting: int
    lost: int

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.start
