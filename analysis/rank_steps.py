"""How long each rank's forward passes, dispatches and combines take over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from moescope.analysis.expert_load import TimeArray
from moescope.analysis.frozen import lock, locked_int64
from moescope.analysis.medians import median_of_known
from moescope.analysis.span import Span
from moescope.analysis.store import Store, column_as_array
from moescope.analysis.straggler_windows import StragglerWindows
from moescope.schemas.attributes import DispatchStage, Phase
from moescope.schemas.records import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class RankSteps:
    """What the ranks of one EP group did in one phase over time; NaN where a rank says nothing; read-only.

    Attributes:
        starts_ms: int64 ``[windows]``, Unix milliseconds, the oldest first.
        ranks: int64 ``[ranks]``, EP ranks that timed anything, increasing.
        pass_seconds: float64 ``[windows, ranks]``, mean duration of a forward pass, waiting included.
        pass_tokens: float64 ``[windows, ranks]``, mean tokens of one.
        call_seconds: by stage, float64 ``[windows, ranks]``, mean duration of one dispatch or combine of one
            layer, waiting included.
    """

    starts_ms: IntArray
    ranks: IntArray
    pass_seconds: FloatArray
    pass_tokens: FloatArray
    call_seconds: Mapping[DispatchStage, FloatArray]

    @property
    def times(self) -> TimeArray:
        """Starts of the windows, UTC: datetime64[ms] ``[windows]``."""
        return self.starts_ms.astype("datetime64[ms]")

    @staticmethod
    def median_of(values: FloatArray) -> FloatArray:
        """The median rank in each window of ``[windows, ranks]``: float64 ``[windows]``, NaN if unknown."""
        return median_of_known(values, 1)

    @property
    def typical_pass_seconds(self) -> FloatArray:
        """Each rank's median pass over the windows: float64 ``[ranks]``."""
        return median_of_known(self.pass_seconds, 0)

    def position(self, rank: int) -> int | None:
        """Where an EP rank stands on the rank axis; None where it timed nothing."""
        at = np.flatnonzero(self.ranks == rank)
        return int(at[0]) if len(at) else None


def read_rank_steps(store: Store, span: Span) -> Mapping[Phase, RankSteps]:
    """Read the passes, dispatches and combines of the ranks of one EP group, by phase.

    Raises:
        StoreError: the store cannot answer.
    """
    windows = StragglerWindows.of(span)
    params = span.params() | {"start_ms": windows.start_ms, "end_ms": windows.end_ms}
    passes, calls = (
        store.query(name, step_seconds=windows.seconds, **params)
        for name in ("step_time_windows", "dispatch_time_windows")
    )
    return arrange_rank_steps(windows, passes, calls)


def arrange_rank_steps(windows: StragglerWindows, passes: Any, calls: Any) -> Mapping[Phase, RankSteps]:
    """Put the rows of ``queries/step_time_windows.sql`` and ``dispatch_time_windows.sql`` on common axes."""
    found = {}
    for phase in Phase:
        pass_rows = column_as_array(passes, "phase") == phase.value
        call_rows = column_as_array(calls, "phase") == phase.value
        if not (pass_rows.any() or call_rows.any()):
            continue
        named = (
            column_as_array(passes, "ep_rank")[pass_rows],
            column_as_array(calls, "ep_rank")[call_rows],
        )
        axes = _Axes(windows, locked_int64(np.unique(np.concatenate(named))))
        number = axes.column(passes, "steps", pass_rows)
        stages = column_as_array(calls, "stage")
        call_seconds = {}
        for stage in DispatchStage:
            rows = call_rows & (stages == stage.value)
            if rows.any():
                total, count = (axes.column(calls, name, rows) for name in ("total_seconds", "calls"))
                call_seconds[stage] = _divide(total, count)
        found[phase] = RankSteps(
            *(windows.starts_ms, axes.ranks),
            _divide(axes.column(passes, "total_seconds", pass_rows), number),
            _divide(axes.column(passes, "tokens", pass_rows), number),
            call_seconds,
        )
    return found


@dataclass(frozen=True, slots=True)
class _Axes:
    windows: StragglerWindows
    ranks: IntArray

    def column(self, table: Any, name: str, rows: Any) -> FloatArray:
        """One column of these rows as ``[windows, ranks]``, NaN where there is no row."""
        starts = self.windows.starts_ms
        values = np.full((len(starts), len(self.ranks)), np.nan)
        times = column_as_array(table, "time_ms")[rows]
        inside = np.isin(times, starts)
        window = np.searchsorted(starts, times[inside])
        rank = np.searchsorted(self.ranks, column_as_array(table, "ep_rank")[rows][inside])
        values[window, rank] = column_as_array(table, name)[rows][inside]
        return values


def _divide(total: FloatArray, number: FloatArray) -> FloatArray:
    ratio: FloatArray = lock(np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0))
    return ratio
