"""The two all-to-alls around the experts: how long they take, and who waits for whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis.distribution import Distribution, DistributionKey
from moescope.analysis.frozen import lock, locked_int64
from moescope.analysis.span import Span
from moescope.analysis.store import Store, column_as_array
from moescope.schemas import metrics
from moescope.schemas.attributes import DispatchStage, Phase
from moescope.schemas.records import FloatArray, IntArray

DISPATCH_METRICS: Final = (metrics.DISPATCH_DURATION,)
CYCLES_WORDS: Final = "The engine counts clock cycles, summed over warps: this compares ranks and is no time."
_CYCLE_ENGINES: Final = frozenset({"sglang"})
"""Engines that hand on what DeepEP's kernels count."""
_MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True)
class WaitMatrix:
    """How long each rank waited for each other one in one stage.

    Attributes:
        ranks: int64 ``[ranks]``, EP ranks that reported or were waited for, increasing.
        seconds: float64 ``[ranks, peers]`` on that axis both ways: row waits for column. NaN in the rows of
            ranks that reported nothing.
        waited_seconds: float64 ``[ranks]``, what each rank waited in all.
        caused_seconds: float64 ``[ranks]``, what all others waited for each rank.
        is_time: False where any of it is clock cycles summed over warps: only ratios mean something then.
    """

    stage: DispatchStage
    ranks: IntArray
    seconds: FloatArray
    waited_seconds: FloatArray
    caused_seconds: FloatArray
    is_time: bool = True

    @property
    def of_mean_pair(self) -> FloatArray:
        """Each wait over the mean one of two ranks: float64 ``[ranks, peers]``; 0 where nobody waited."""
        apart = self.seconds[~np.eye(len(self.ranks), dtype=bool)]
        known = apart[~np.isnan(apart)]
        return self.seconds / ((known.mean() if len(known) else 0.0) or 1.0)

    @property
    def caused_of_mean(self) -> FloatArray:
        """What the others waited for each rank, over the mean of the ranks: float64 ``[ranks]``."""
        return self.caused_seconds / (float(self.caused_seconds.mean()) or 1.0)

    def per_minute(self, seconds: float) -> FloatArray:
        """Seconds waited in each minute of a span of ``seconds``: float64 ``[ranks, peers]``."""
        return self.seconds * (_MINUTE / max(seconds, 1.0))

    def caused_per_minute(self, seconds: float) -> FloatArray:
        """Seconds that all others waited for each rank in each minute of a span: float64 ``[ranks]``."""
        return self.caused_seconds * (_MINUTE / max(seconds, 1.0))

    @property
    def most_awaited(self) -> int:
        """The rank that the others waited for longest."""
        return int(self.ranks[self.caused_seconds.argmax()])


def pick_dispatch_times(
    distributions: Mapping[DistributionKey, Distribution],
) -> Mapping[tuple[DispatchStage, Phase], Distribution]:
    """Durations of dispatch and combine that are stored, by stage and phase."""
    found = {}
    for stage in DispatchStage:
        for phase in Phase:
            key = DistributionKey(metrics.DISPATCH_DURATION.name, stage.value, phase.value)
            if key in distributions:
                found[stage, phase] = distributions[key]
    return found


def read_waits(store: Store, span: Span) -> Mapping[DispatchStage, WaitMatrix]:
    """Read the wait matrix of each stage of one EP group, over the whole span.

    Raises:
        StoreError: the store cannot answer.
    """
    table = store.query("dispatch_wait", **span.params())
    stages = column_as_array(table, "stage")
    reporters, peers = (locked_int64(column_as_array(table, name)) for name in ("ep_rank", "peer_rank"))
    seconds = column_as_array(table, "wait_seconds").astype(np.float64)
    is_time = counts_time(store, span)
    found = {}
    for stage in DispatchStage:
        rows = stages == stage.value
        if rows.any():
            found[stage] = arrange_waits(stage, reporters[rows], peers[rows], seconds[rows], is_time=is_time)
    return found


def counts_time(store: Store, span: Span) -> bool:
    """Whether all engines of an EP group count waits as time, none of them clock cycles over warps.

    Raises:
        StoreError: the store cannot answer.
    """
    engines = store.query("wait_engines", **span.params()).column("engine").to_pylist()
    return _CYCLE_ENGINES.isdisjoint(engines)


def arrange_waits(
    stage: DispatchStage,
    reporters: IntArray,
    peers: IntArray,
    seconds: FloatArray,
    *,
    is_time: bool = True,
) -> WaitMatrix:
    """Arrange (reporting rank, peer rank, seconds) as a matrix."""
    ranks = np.union1d(reporters, peers)
    matrix = np.full((len(ranks), len(ranks)), np.nan)
    matrix[np.isin(ranks, reporters)] = 0.0
    np.add.at(matrix, (np.searchsorted(ranks, reporters), np.searchsorted(ranks, peers)), seconds)
    return WaitMatrix(
        *(stage, locked_int64(ranks), lock(matrix)),
        lock(np.nansum(matrix, axis=1)),
        lock(np.nansum(matrix, axis=0)),
        is_time,
    )
