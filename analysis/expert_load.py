"""Read expert load: whose it is, one window of it, one layer's history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from moescope.analysis.clustering import IntervalSums
from moescope.analysis.frozen import lock, locked_int64
from moescope.analysis.store import Store, column_as_array, list_column_as_array
from moescope.schemas.attributes import Phase
from moescope.schemas.records import IntArray
from moescope.schemas.settings import Settings

TimeArray: TypeAlias = npt.NDArray[np.datetime64]

_MS: Final = 1000
_SHORTEST_MS: Final = 60 * _MS
"""Windows end with a minute, so less than one may hold nothing."""
_HOUR_MS: Final = 3600 * _MS
_DAY_MS: Final = 24 * _HOUR_MS


@dataclass(frozen=True, slots=True)
class Tier:
    """A table of expert load, by the length of its intervals."""

    table: str
    interval_seconds: int


RAW: Final = Tier("expert_load", 10)
MINUTES: Final = Tier("expert_load_1m", 60)
TEN_MINUTES: Final = Tier("expert_load_10m", 600)
HOURS: Final = Tier("expert_load_1h", 3600)


@dataclass(frozen=True, slots=True)
class LoadScope:
    """One deployment, EP group and phase whose expert load is stored.

    ``first_ms`` and ``end_ms`` bound what is stored, Unix milliseconds; ``layers`` counts the layers with
    routed experts and ``experts`` the logical experts of each.
    """

    service: str
    ep_group: str
    phase: Phase
    experts: int
    layers: int
    first_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class ExpertLoadWindow:
    """Assignments of one scope in one window, summed over the ranks that counted them.

    Attributes:
        tier: where it was read; its interval is the sub-interval of ``sums``.
        start_ms, end_ms: Unix milliseconds, end excluded; the start is not before the first stored window,
            unless nothing is stored before the end.
        layers: int64 ``[layers]``, the model's layer indices, increasing.
        tokens: int64 ``[layers, experts]``, assignments by logical expert.
        sums: of the same window, for the design effect.
        intervals: int64 ``[layers]``, sub-intervals with tokens.
    """

    scope: LoadScope
    tier: Tier
    start_ms: int
    end_ms: int
    layers: IntArray
    tokens: IntArray
    sums: IntervalSums
    intervals: IntArray

    @property
    def start(self) -> datetime:
        """Start of the window, UTC."""
        return from_ms(self.start_ms)

    @property
    def end(self) -> datetime:
        """End of the window, UTC."""
        return from_ms(self.end_ms)

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return (self.end_ms - self.start_ms) / _MS

    def row_of_layer(self, layer: int) -> int | None:
        """Position of a layer of the model on the layer axis, None if it has no routed experts."""
        rows = np.flatnonzero(self.layers == layer)
        return int(rows[0]) if len(rows) else None


@dataclass(frozen=True, slots=True)
class LayerHistory:
    """One layer's assignments over time, by phase.

    Attributes:
        interval_seconds: length of an interval.
        times: by phase, datetime64[ms] ``[intervals]``, UTC, starts of the intervals with windows.
        tokens: by phase, int64 ``[intervals, experts]``.
    """

    layer: int
    interval_seconds: int
    times: Mapping[Phase, TimeArray]
    tokens: Mapping[Phase, IntArray]


def list_scopes(store: Store) -> tuple[LoadScope, ...]:
    """List whose expert load is stored; of a deployment that changed its model, the newest shape.

    Raises:
        StoreError: the store cannot answer.
    """
    newest: dict[tuple[str, str, str], LoadScope] = {}
    for row in store.query("expert_load_scopes").to_pylist():
        if row["phase"] in set(Phase):
            scope = LoadScope(**(row | {"phase": Phase(row["phase"])}))
            newest[scope.service, scope.ep_group, scope.phase] = scope
    return tuple(newest.values())


def choose_tier(start_ms: int, end_ms: int, newest_ms: int, settings: Settings) -> Tier:
    """Pick the finest table that answers quickly and still holds the window.

    Args:
        start_ms: start of the window, Unix milliseconds.
        end_ms: end of the window.
        newest_ms: end of the newest stored window: what retention counts from.
        settings: how long each table is kept.
    """
    length, age = end_ms - start_ms, newest_ms - start_ms
    if length <= 3 * 60 * _MS and age <= settings.raw_ttl_hours * _HOUR_MS:
        return RAW
    if length <= 6 * _HOUR_MS and age <= settings.minute_ttl_days * _DAY_MS:
        return MINUTES
    if length <= 3 * _DAY_MS and age <= settings.ten_minute_ttl_days * _DAY_MS:
        return TEN_MINUTES
    return HOURS


def read_window(
    store: Store, scope: LoadScope, window_seconds: float, settings: Settings, *, end_ms: int | None = None
) -> ExpertLoadWindow:
    """Read the last ``window_seconds`` before ``end_ms``; before the newest stored window if None.

    Raises:
        StoreError: the store cannot answer.
    """
    end_ms = min(end_ms or scope.end_ms, scope.end_ms)
    start_ms = end_ms - max(int(window_seconds * _MS), _SHORTEST_MS)
    if scope.first_ms < end_ms:
        start_ms = max(start_ms, scope.first_ms)
    tier = choose_tier(start_ms, end_ms, scope.end_ms, settings)
    bounds = _bounds(scope, start_ms, end_ms) | {"phase": scope.phase.value}
    if tier is RAW:
        table = store.query("expert_load_window_raw", interval_seconds=tier.interval_seconds, **bounds)
    else:
        table = store.query("expert_load_window", table=tier.table, **bounds)
    return ExpertLoadWindow(
        *(scope, tier, start_ms, end_ms),
        locked_int64(column_as_array(table, "layer")),
        locked_int64(list_column_as_array(table, "tokens", scope.experts)),
        IntervalSums(
            lock(column_as_array(table, "squares").copy()),
            lock(column_as_array(table, "total_squares").copy()),
        ),
        locked_int64(column_as_array(table, "intervals")),
    )


def read_layer_history(
    store: Store, scope: LoadScope, layer: int, settings: Settings, *, start_ms: int, end_ms: int
) -> LayerHistory:
    """Read one layer over time, both phases, in intervals of a minute or more.

    Raises:
        StoreError: the store cannot answer.
    """
    tier = choose_tier(start_ms, end_ms, scope.end_ms, settings)
    tier = MINUTES if tier is RAW else tier
    table = store.query(
        "expert_load_layer_history",
        table=tier.table,
        interval_seconds=tier.interval_seconds,
        layer=layer,
        **_bounds(scope, start_ms, end_ms),
    )
    phases = column_as_array(table, "phase")
    times = column_as_array(table, "time_ms").astype("datetime64[ms]")
    tokens = list_column_as_array(table, "tokens", scope.experts)
    rows = {phase: np.flatnonzero(phases == phase.value) for phase in Phase}
    return LayerHistory(
        layer,
        tier.interval_seconds,
        {phase: lock(times[at]) for phase, at in rows.items()},
        {phase: locked_int64(tokens[at]) for phase, at in rows.items()},
    )


def from_ms(unix_ms: int) -> datetime:
    """Unix milliseconds as a time in UTC."""
    return datetime.fromtimestamp(unix_ms / _MS, UTC)


def _bounds(scope: LoadScope, start_ms: int, end_ms: int) -> dict[str, str | int]:
    return {
        "service": scope.service,
        "ep_group": scope.ep_group,
        "experts": scope.experts,
        "start_ms": start_ms,
        "end_ms": end_ms,
    }
