"""Closer looks at one EP group: what rules need and what is too dear for every judgement of a fleet.

Each look reads and decides by the functions of a report, so its numbers are the report's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from moescope.analysis.assessment import read_assessment
from moescope.analysis.expert_load import LoadScope, list_scopes
from moescope.analysis.failover_answer import group_scopes
from moescope.analysis.failover_cover import read_rank_cover
from moescope.analysis.imbalance_trend import read_change, regret_placement
from moescope.analysis.memory import FullPool, read_pool_memory
from moescope.analysis.memory_findings import fill_soon, lasting
from moescope.analysis.memory_forecast import PoolForecast, forecast_pools
from moescope.analysis.pool_series import read_pool_states
from moescope.analysis.replan_findings import most_regret
from moescope.analysis.span import Span, cover, list_deployments
from moescope.analysis.store import Store
from moescope.analysis.straggler import Straggler
from moescope.analysis.straggler_report import read_straggler_answer
from moescope.schemas.attributes import MemoryPool
from moescope.schemas.fleet import AwaitedRank, FindingKind, GroupCover, LookKind, PoolEnd, ReplanGain
from moescope.schemas.settings import Settings

FOUND_BY_LOOKS: Final = frozenset(
    (FindingKind.STRAGGLER, FindingKind.POOL_FULL, FindingKind.POOL_FILLING, FindingKind.FAILOVER_UNCOVERED)
)
"""Kinds that a group has no count of until it was looked at."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found. Of ``findings`` those kinds that could be judged are there, 0 included."""

    awaited: tuple[AwaitedRank, ...] = ()
    pool_ends: tuple[PoolEnd, ...] = ()
    covers: tuple[GroupCover, ...] = ()
    replans: tuple[ReplanGain, ...] = ()
    findings: Mapping[FindingKind, int] = field(default_factory=dict)


def take_look(store: Store, kind: LookKind, service: str, ep_group: str, settings: Settings) -> Look:
    """Look at an EP group over the window of the page; nothing is found of one that is not stored.

    Raises:
        StoreError: the store cannot answer.
    """
    if kind in _OF_SPANS:
        span = _span(store, service, ep_group, settings.fleet_page_window_seconds)
        return Look() if span is None else _OF_SPANS[kind](store, span, settings)
    scopes = next(group_scopes(list_scopes(store), service, ep_group), ())
    return _OF_SCOPES[kind](store, scopes, settings) if scopes else Look()


def look_for_stragglers(store: Store, span: Span, settings: Settings) -> Look:
    """What the others wait for; of what is named of a rank in the same way, the largest.

    Raises:
        StoreError: the store cannot answer.
    """
    answer = read_straggler_answer(store, span, settings, limit=0)
    if not answer.is_judged:
        return Look()
    return Look(
        awaited=tuple(name_ranks(answer.stragglers, span)),
        findings={FindingKind.STRAGGLER: len(answer.stragglers)},
    )


def name_ranks(stragglers: Sequence[Straggler], span: Span) -> Iterator[AwaitedRank]:
    """Tell each straggler of the one rank that stands for it."""
    largest: dict[tuple[int, str], float] = {}
    for one in stragglers:
        key = (min(one.ranks) if one.rank is None else one.rank, one.kind.value)
        largest[key] = max(largest.get(key, 0.0), one.times_others)
    for (rank, kind), times in sorted(largest.items()):
        yield AwaitedRank(span.service, span.ep_group, rank, kind, times)


def look_at_memory(store: Store, span: Span, settings: Settings) -> Look:
    """Which pool ends first, of each kind of pool.

    Raises:
        StoreError: the store cannot answer.
    """
    series = read_pool_states(store, span).series()
    memory = lasting(read_pool_memory(store, span, settings), series, settings)
    if not len(memory.ranks) and not series:
        return Look()
    forecasts = forecast_pools(series)
    return Look(
        pool_ends=tuple(first_ends(memory.full, forecasts, span)),
        findings={
            FindingKind.POOL_FULL: len(memory.full),
            FindingKind.POOL_FILLING: len(fill_soon(memory, forecasts, settings)),
        },
    )


def first_ends(full: Sequence[FullPool], forecasts: Sequence[PoolForecast], span: Span) -> Iterator[PoolEnd]:
    """Of each kind of pool the rank where it ends first: where it is full, else where it is full soonest."""
    ends: dict[MemoryPool, tuple[float, int]] = {}
    for pool, found in (
        *((one.pool, (0.0, one.rank)) for one in full),
        *((one.pool, (one.seconds, one.ranks[0])) for one in forecasts),
    ):
        ends[pool] = min(ends.get(pool, found), found)
    for pool, (seconds, rank) in ends.items():
        yield PoolEnd(span.service, span.ep_group, rank, pool, seconds)


def look_at_failover(store: Store, scopes: Sequence[LoadScope], settings: Settings) -> Look:
    """What would be lost with the rank that has most to lose.

    Raises:
        StoreError: the store cannot answer.
    """
    found = read_rank_cover(store, scopes, settings.fleet_page_window_seconds, settings)
    if found is None:
        return Look()
    row = found.worst
    place = (scopes[0].service, scopes[0].ep_group)
    return Look(
        covers=(
            GroupCover(*place, int(found.ranks[row]), float(found.lost_share[row]), found.uncovered_share),
        ),
        findings={FindingKind.FAILOVER_UNCOVERED: found.beyond(settings.failover_lost_share)},
    )


def look_for_replan(store: Store, scopes: Sequence[LoadScope], settings: Settings) -> Look:
    """Where the load drifted and moving a few experts would win more than noise, by phase.

    Raises:
        StoreError: the store cannot answer.
    """
    gains = ((scope, _replan_gain(store, scope, settings)) for scope in scopes)
    return Look(
        replans=tuple(
            ReplanGain(scope.service, scope.ep_group, scope.phase, gain)
            for scope, gain in gains
            if gain >= settings.replan_min_gain
        )
    )


def _replan_gain(store: Store, scope: LoadScope, settings: Settings) -> float:
    """0 where the load did not drift, or even perfect balance would win too little."""
    assessment = read_assessment(store, scope, settings.fleet_page_window_seconds, settings)
    if most_regret(assessment) < settings.replan_min_gain:
        return 0.0
    change = read_change(store, assessment, settings)
    if change is None or not change.drift.is_significant.any():
        return 0.0
    regret = regret_placement(assessment)
    return 0.0 if regret is None else regret.mean


def _span(store: Store, service: str, ep_group: str, window_seconds: float) -> Span | None:
    stored = (one for one in list_deployments(store) if one.service == service)
    found = next((one for one in stored if ep_group in one.ep_groups), None)
    return None if found is None else cover(found, window_seconds, ep_group=ep_group)


_OF_SPANS: Final = {LookKind.STRAGGLERS: look_for_stragglers, LookKind.MEMORY: look_at_memory}
_OF_SCOPES: Final = {LookKind.FAILOVER: look_at_failover, LookKind.REPLAN: look_for_replan}
