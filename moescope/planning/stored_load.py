"""The load of a deployment, out of a store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.clustering import estimate_design_effect
from moescope.analysis.expert_load import LoadScope, list_scopes, read_window
from moescope.analysis.expert_weight_size import read_bytes_per_expert
from moescope.analysis.load_windows import LoadWindows, read_load_windows
from moescope.analysis.placement import PlacementSnapshot, read_placement
from moescope.analysis.store import Store
from moescope.planning.load import PlanLoad
from moescope.schemas.errors import PlacementError, UsageError
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.settings import Settings
from moescope.schemas.topology import Placement, place_replicas

STORED_WINDOWS: Final = 6
"""So many parts of the time looked back over: enough to forecast and to back-test."""

_MS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Whose:
    """Which expert load is meant; None where there is only one, or all are."""

    service: str | None = None
    ep_group: str | None = None
    phase: str | None = None


def read_stored_load(
    store: Store,
    settings: Settings,
    whose: Whose,
    *,
    window_seconds: float,
    count: int,
    end_ms: int | None = None,
) -> PlanLoad:
    """Read the last windows of one EP group, with its placement, the size of its experts and its nodes.

    Without a phase, prefill and decode are added: they share one placement. The windows end at ``end_ms``
    (Unix milliseconds), with the newest that every rank has reported if None.

    Raises:
        UsageError: nothing is stored, or more than one group is meant; the message names the options.
        StoreError: the store cannot answer.
    """
    scopes = choose_scopes(list_scopes(store), whose)

    def read(scope: LoadScope, last_ms: int | None) -> LoadWindows:
        return read_load_windows(
            store, scope, window_seconds=window_seconds, count=count, settings=settings, end_ms=last_ms
        )

    windows = _read_together(scopes, read, end_ms)
    first = windows[0]
    layers = np.unique(np.concatenate([one.layers for one in windows]))
    tokens = np.zeros((count, len(layers), scopes[0].experts))
    for one in windows:
        tokens[:, np.searchsorted(layers, one.layers)] += one.tokens
    is_used = tokens.any(axis=(1, 2))
    if not is_used.any():
        raise UsageError(
            f"{scopes[0].service} routed nothing in the last {words.duration(window_seconds * count)}; look "
            "further back with --window"
        )
    notes = []
    if not is_used.all():
        missing = words.count(int((~is_used).sum()), "window")
        notes.append(f"Of {missing} out of {count} nothing is stored: left out.")
    placement, remark = _placement_of(store, scopes[0], settings, first, layers)
    return PlanLoad(
        tokens=tokens[is_used],
        layers=layers,
        source=_describe(scopes, first, count),
        is_forecast_fair=True,
        design_effect=_design_effect(store, scopes, settings, first, layers),
        current=placement,
        bytes_per_expert=read_bytes_per_expert(store, scopes[0], layers, until_ms=first.end_ms),
        nodes=_count_nodes(store, first),
        end_ms=first.end_ms,
        notes=(*notes, *remark),
    )


def seconds_of_each(window_seconds: float, count: int) -> float:
    """Length of each of ``count`` windows of a time to look back: whole minutes, one at least."""
    return max(60.0, window_seconds / count // 60 * 60)


def choose_scopes(scopes: tuple[LoadScope, ...], whose: Whose) -> list[LoadScope]:
    """The phases of the one EP group that is meant, the newest first.

    Raises:
        UsageError: none, or more than one; the message names what there is and the options.
    """
    kept = [
        scope
        for scope in scopes
        if whose.service in {None, scope.service}
        and whose.ep_group in {None, scope.ep_group}
        and whose.phase in {None, scope.phase.value}
    ]
    if not kept:
        there = ", ".join(sorted({f"{s.service} {s.ep_group} {s.phase.value}" for s in scopes}))
        raise UsageError(
            "no such expert load is stored; there is (service, EP group, phase): " + there
            if there
            else "no expert load is stored. Start `moescope simulate`, instrument an engine, or plan from a "
            "file with --from-counts"
        )
    groups = sorted({(scope.service, scope.ep_group) for scope in kept})
    if len(groups) > 1:
        named = "; ".join(f"--service {service} --ep-group {group}" for service, group in groups)
        raise UsageError(f"a plan is for one EP group, and {len(groups)} are stored; choose one: {named}")
    newest = max(scope.end_ms for scope in kept)
    experts = next(scope.experts for scope in kept if scope.end_ms == newest)
    return sorted((s for s in kept if s.experts == experts), key=lambda scope: -scope.end_ms)


def _read_together(
    scopes: list[LoadScope], read: Callable[[LoadScope, int | None], LoadWindows], last_ms: int | None
) -> list[LoadWindows]:
    """The windows of each phase, all with the same starts; phases that ended before them are left out."""
    windows = [read(scopes[0], last_ms)]
    for scope in scopes[1:]:
        other = read(scope, windows[0].end_ms)
        if other.end_ms != windows[0].end_ms and other.end_ms > windows[0].starts_ms[0]:
            windows = [read(one.scope, other.end_ms) for one in windows]
        if other.end_ms == windows[0].end_ms:
            windows.append(other)
    return windows


def _design_effect(
    store: Store, scopes: list[LoadScope], settings: Settings, read: LoadWindows, layers: IntArray
) -> FloatArray:
    """D per layer over all windows; of several phases the mean, weighed by their assignments."""
    seconds = (read.end_ms - int(read.starts_ms[0])) / _MS
    weighed, weight = np.zeros(len(layers)), np.zeros(len(layers))
    for scope in scopes:
        window = read_window(store, scope, seconds, settings, end_ms=read.end_ms)
        is_known = np.isin(window.layers, layers)
        effect = estimate_design_effect(window.tokens, window.sums)[is_known]
        row = np.searchsorted(layers, window.layers[is_known])
        tokens = np.where(np.isnan(effect), 0, window.tokens.sum(axis=1)[is_known])
        weighed[row] += np.nan_to_num(effect) * tokens
        weight[row] += tokens
    return np.where(weight > 0, weighed / np.where(weight > 0, weight, 1), np.nan)


def _placement_of(
    store: Store, scope: LoadScope, settings: Settings, read: LoadWindows, layers: IntArray
) -> tuple[Placement | None, tuple[str, ...]]:
    seconds = (read.end_ms - int(read.starts_ms[0])) / _MS
    window = read_window(store, scope, seconds, settings, end_ms=read.end_ms)
    snapshot = read_placement(store, window)
    if snapshot is None or not np.array_equal(window.layers, layers):
        return None, ("No rank has said which experts it holds.",)
    return to_placement(snapshot)


def to_placement(snapshot: PlacementSnapshot) -> tuple[Placement | None, tuple[str, ...]]:
    """What the ranks said they hold, as a placement; None, and a sentence, where it is not whole."""
    if len(snapshot.missing_ranks):
        who = words.listed("rank", snapshot.missing_ranks.tolist())
        return None, (f"{who} never said which experts they hold, so the current placement is not known.",)
    try:
        return place_replicas(snapshot.replicas.astype(np.int64)), ()
    except PlacementError as error:
        return None, (f"The current placement is not known: {error}.",)


def _count_nodes(store: Store, read: LoadWindows) -> int | None:
    """Nodes, where the ranks of each follow each other and all have equally many."""
    table = store.query(
        "rank_hosts",
        service=read.scope.service,
        ep_group=read.scope.ep_group,
        start_ms=int(read.starts_ms[0]),
        end_ms=read.end_ms,
    )
    hosts = [row["host"] for row in sorted(table.to_pylist(), key=lambda row: row["ep_rank"])]
    nodes = len(set(hosts))
    if not hosts or not all(hosts) or len(hosts) % nodes:
        return None
    size = len(hosts) // nodes
    blocks = [set(hosts[first : first + size]) for first in range(0, len(hosts), size)]
    return nodes if all(len(block) == 1 for block in blocks) else None


def _describe(scopes: list[LoadScope], read: LoadWindows, count: int) -> str:
    phases = " and ".join(sorted((scope.phase.value for scope in scopes), reverse=True))
    end = datetime.fromtimestamp(read.end_ms / _MS, UTC)
    return (
        f"{scopes[0].service}, EP group {scopes[0].ep_group}, {phases}: {count} windows of "
        f"{words.duration(read.seconds)} to {end:%Y-%m-%d %H:%M:%S} UTC"
    )
