"""Read what a store knows of the ranks of one EP group, as evidence for :mod:`stragglers`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from moescope.analysis.dispatch import counts_time
from moescope.analysis.expert_load import list_scopes, read_window
from moescope.analysis.frozen import lock, locked_int64
from moescope.analysis.imbalance import compute_rank_loads
from moescope.analysis.medians import median_of_known
from moescope.analysis.placement import read_placement
from moescope.analysis.rank_io import read_hosts
from moescope.analysis.span import Span
from moescope.analysis.store import Store, column_as_array
from moescope.analysis.straggler_evidence import RankTimes, StragglerEvidence, StragglerRules
from moescope.analysis.straggler_windows import StragglerWindows
from moescope.schemas.attributes import DispatchStage, Phase
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.settings import Settings

_MS: Final = 1000


def read_straggler_evidence(store: Store, span: Span, settings: Settings) -> StragglerEvidence:
    """Read all evidence of a span, in windows of a minute; longer ones where that would be too many.

    Raises:
        StoreError: the store cannot answer.
    """
    windows = StragglerWindows.of(span)
    params = span.params() | {"start_ms": windows.start_ms, "end_ms": windows.end_ms}
    tables = {
        name: store.query(name, step_seconds=windows.seconds, **params)
        for name in ("dispatch_wait_windows", "step_time_windows", "dispatch_time_windows")
    }
    newest_ms = windows.end_ms - StragglerRules.of(settings).recent_windows * windows.seconds * _MS
    recent = params | {"start_ms": max(newest_ms, windows.start_ms)}
    tables["experts"] = store.query("expert_group_time_windows", step_seconds=windows.seconds, **recent)
    loads = _read_loads(store, span, settings, int(recent["start_ms"]))
    return arrange_evidence(
        windows, tables, loads, read_hosts(store, span), waits_are_time=counts_time(store, span)
    )


@dataclass(frozen=True, slots=True)
class RankLoads:
    """What each rank computed in the newest windows of one phase.

    Attributes:
        layers: int64 ``[layers]``, the model's layer indices, increasing.
        ranks: int64 ``[ranks]``, EP ranks that reported a placement, increasing.
        assignments: float64 ``[layers, ranks]``.
    """

    layers: IntArray
    ranks: IntArray
    assignments: FloatArray


def arrange_evidence(
    windows: StragglerWindows,
    tables: Mapping[str, Any],
    loads: Mapping[Phase, RankLoads],
    host_of_rank: Mapping[int, str],
    *,
    waits_are_time: bool,
) -> StragglerEvidence:
    """Put the rows of the queries on common axes."""
    named = [column_as_array(table, "ep_rank") for table in tables.values()]
    named.append(column_as_array(tables["dispatch_wait_windows"], "peer_rank"))
    ranks = locked_int64(np.unique(np.concatenate(named)))
    axes = _Axes(windows, ranks)
    return StragglerEvidence(
        ranks=ranks,
        starts_ms=windows.starts_ms,
        window_seconds=windows.seconds,
        covered_seconds=windows.covered_seconds(),
        waits=axes.waits(tables["dispatch_wait_windows"]),
        waits_are_time=waits_are_time,
        hosts=tuple(host_of_rank.get(rank, "") for rank in ranks.tolist()),
        times=axes.times(tables, loads),
    )


@dataclass(frozen=True, slots=True)
class _Axes:
    windows: StragglerWindows
    ranks: IntArray

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.windows.starts_ms), len(self.ranks)

    def waits(self, table: Any) -> dict[DispatchStage, FloatArray]:
        stages, seconds = column_as_array(table, "stage"), column_as_array(table, "wait_seconds")
        peers = np.searchsorted(self.ranks, column_as_array(table, "peer_rank"))
        window, rank = self._cells(table)
        found = {}
        for stage in DispatchStage:
            rows = stages == stage.value
            if rows.any():
                matrix = np.full((*self.shape, len(self.ranks)), np.nan)
                matrix[window[rows], rank[rows], peers[rows]] = seconds[rows]
                found[stage] = matrix
        return found

    def times(self, tables: Mapping[str, Any], loads: Mapping[Phase, RankLoads]) -> dict[Phase, RankTimes]:
        found = {}
        steps, calls = tables["step_time_windows"], tables["dispatch_time_windows"]
        for phase in Phase:
            passes = self._column(steps, "steps", phase=phase.value)
            total = self._column(steps, "total_seconds", phase=phase.value)
            tokens = self._column(steps, "tokens", phase=phase.value)
            if not np.isfinite(passes).any() and phase not in loads:
                continue
            number = {
                stage: self._column(calls, "calls", phase=phase.value, stage=stage.value)
                for stage in DispatchStage
            }
            in_calls = {
                stage: self._column(calls, "total_seconds", phase=phase.value, stage=stage.value)
                for stage in DispatchStage
            }
            one = RankTimes(
                passes=passes,
                pass_seconds=_divide(total, passes),
                pass_tokens=_divide(tokens, passes),
                call_seconds={
                    stage: _divide(in_calls[stage], number[stage])
                    for stage in DispatchStage
                    if np.isfinite(number[stage]).any()
                },
            )
            found[phase] = self._with_experts(one, tables["experts"], loads.get(phase), number, phase)
        return found

    def _with_experts(
        self,
        one: RankTimes,
        table: Any,
        load: RankLoads | None,
        calls: Mapping[DispatchStage, FloatArray],
        phase: Phase,
    ) -> RankTimes:
        """Add loads and expert times, both on the layers that have loads."""
        if load is None:
            return one
        layers = load.layers
        loads = np.full((len(layers), len(self.ranks)), np.nan)
        kept = np.isin(load.ranks, self.ranks)
        loads[:, np.searchsorted(self.ranks, load.ranks[kept])] = load.assignments[:, kept]
        rows = column_as_array(table, "phase") == phase.value
        rows &= np.isin(column_as_array(table, "layer"), layers)
        if not rows.any():
            return replace(one, loads=loads)
        window, rank = self._cells(table)
        seconds = np.full((self.shape[0], len(layers), self.shape[1]), np.nan)
        layer = np.searchsorted(layers, column_as_array(table, "layer"))
        seconds[window[rows], layer[rows], rank[rows]] = column_as_array(table, "expert_seconds")[rows]
        timed = _timed_passes(one.passes, calls, len(layers))
        return replace(one, loads=loads, expert_seconds=_divide(seconds, timed[:, None, :]))

    def _column(self, table: Any, name: str, **where: str) -> FloatArray:
        rows = np.ones(table.num_rows, dtype=bool)
        for column, value in where.items():
            rows &= column_as_array(table, column) == value
        window, rank = self._cells(table)
        cells: FloatArray = np.full(self.shape, np.nan)
        cells[window[rows], rank[rows]] = column_as_array(table, name)[rows]
        return cells

    def _cells(self, table: Any) -> tuple[IntArray, IntArray]:
        since = column_as_array(table, "time_ms") - self.windows.start_ms
        window: IntArray = since // (self.windows.seconds * _MS)
        rank: IntArray = np.searchsorted(self.ranks, column_as_array(table, "ep_rank"))
        return window, rank


def _timed_passes(
    passes: FloatArray, calls: Mapping[DispatchStage, FloatArray], num_layers: int
) -> FloatArray:
    """Passes that the expert times of each rank stand for: float64 ``[windows, ranks]``.

    Times are scaled up from the passes that chance looked into, more of one rank's and fewer of
    another's. The dispatches timed with them tell how many; the median rank's stand for all of its passes.
    """
    timed = calls[DispatchStage.DISPATCH] / num_layers
    of_all = median_of_known(_divide(passes, timed), 1)[:, None]
    scaled: FloatArray = np.where(np.isfinite(timed * of_all), timed * of_all, passes)
    return scaled


def _read_loads(store: Store, span: Span, settings: Settings, start_ms: int) -> dict[Phase, RankLoads]:
    seconds = (span.end_ms - start_ms) / _MS
    found = {}
    for scope in list_scopes(store):
        if (scope.service, scope.ep_group) == (span.service, span.ep_group):
            window = read_window(store, scope, seconds, settings, end_ms=span.end_ms)
            placement = read_placement(store, window)
            if placement is not None:
                loads = compute_rank_loads(window.tokens, placement.replicas)
                found[scope.phase] = RankLoads(window.layers, placement.ranks, lock(loads))
    return found


def _divide(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    quotient: FloatArray = np.full(np.broadcast_shapes(numerator.shape, denominator.shape), np.nan)
    np.divide(numerator, denominator, out=quotient, where=np.nan_to_num(denominator) > 0)
    return quotient
