"""Read what is known of an EP group that its failover depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from moescope.analysis.computed_tokens import TokenKind, read_computed_tokens
from moescope.analysis.expert_load import ExpertLoadWindow, LoadScope, read_window
from moescope.analysis.expert_weight_size import read_bytes_per_expert
from moescope.analysis.failover import Failovers, read_failovers
from moescope.analysis.frozen import lock, locked_float64, locked_int64
from moescope.analysis.gpus import read_gpus
from moescope.analysis.memory import read_pool_memory
from moescope.analysis.placement import PlacementSnapshot, read_placement
from moescope.analysis.rank_io import read_hosts
from moescope.analysis.requests import read_goodput
from moescope.analysis.silent_ranks import read_silent_ranks
from moescope.analysis.span import Span, span_between
from moescope.analysis.store import Store, column_as_array
from moescope.schemas.attributes import Excluded, Phase
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.settings import Settings


@dataclass(frozen=True, slots=True)
class FailoverFacts:
    """One EP group in a span. ``R`` stands for the ranks that reported what they hold.

    Attributes:
        span: whose numbers they are, and of when.
        layers: int64 ``[layers]``, the model's layer indices.
        tokens_by_phase: int64 ``[layers, experts]``, assignments.
        placement: where the copies are; its ranks are the rank axis of everything here.
        top_k: experts per token.
        hosts: by row of the rank axis, the machine; empty where it is not known.
        bytes_per_expert: float64 ``[layers]``, of one copy; NaN where it is not known.
        free_bytes: float64 ``[R]``, device memory that no pool is meant for; NaN where it is not known.
        own_share: float64 ``[R]``, part of the tokens that each rank schedules: what its own requests bring.
        ranks_per_engine: ranks that share an engine, and die with it.
        tokens_per_request: prompt and output tokens that a request computes, on average; NaN unknown.
        silent_ranks: EP ranks that have stopped to report.
        failovers: those that were recorded in the span.
    """

    span: Span
    layers: IntArray
    tokens_by_phase: Mapping[Phase, IntArray]
    placement: PlacementSnapshot
    top_k: int
    hosts: tuple[str, ...]
    bytes_per_expert: FloatArray
    free_bytes: FloatArray
    own_share: FloatArray
    ranks_per_engine: int
    tokens_per_request: float
    silent_ranks: tuple[int, ...]
    failovers: Failovers

    @property
    def tokens(self) -> IntArray:
        """Assignments of both phases: int64 ``[layers, experts]``."""
        tokens: IntArray = np.sum(list(self.tokens_by_phase.values()), axis=0)
        return tokens

    @property
    def ranks(self) -> IntArray:
        """EP ranks of the rank axis: int64 ``[R]``."""
        return self.placement.ranks

    @property
    def nodes(self) -> Mapping[str, IntArray]:
        """Rows of the rank axis by machine, those that are known; in the order of their first rank."""
        names = dict.fromkeys(host for host in self.hosts if host)
        return {name: np.flatnonzero(np.array(self.hosts) == name) for name in names}

    @property
    def copies(self) -> IntArray:
        """Copies of each expert: int64 ``[layers, experts]``."""
        copies: IntArray = self.placement.replicas.sum(axis=0, dtype=np.int64)
        return copies

    @property
    def unplaced_ranks(self) -> IntArray:
        """Ranks that go on and never said which experts they hold: int64, increasing."""
        return np.setdiff1d(self.placement.missing_ranks, self.silent_ranks)

    def row_of_rank(self, rank: int) -> int | None:
        """Row of an EP rank, None if it did not report."""
        rows = np.flatnonzero(self.ranks == rank)
        return int(rows[0]) if len(rows) else None


def leave_out_silent(facts: FailoverFacts) -> FailoverFacts:
    """Of a group some of whose ranks fell silent, those that go on; the same where none or all did."""
    rows = np.flatnonzero(~np.isin(facts.ranks, facts.silent_ranks))
    if len(rows) in {0, len(facts.ranks)}:
        return facts
    placement = facts.placement
    return replace(
        facts,
        placement=replace(
            placement, ranks=locked_int64(placement.ranks[rows]), replicas=lock(placement.replicas[rows])
        ),
        hosts=tuple(facts.hosts[row] for row in rows),
        free_bytes=locked_float64(facts.free_bytes[rows]),
        own_share=locked_float64(facts.own_share[rows]),
    )


@dataclass(frozen=True, slots=True)
class PlacedLoad:
    """The load of one EP group, and where its experts are.

    Attributes:
        widest: the window of the phase with most layers, whose layer axis everything here has.
        start_ms: of the first window of any phase, Unix milliseconds.
        tokens_by_phase: int64 ``[layers, experts]``, assignments.
    """

    widest: ExpertLoadWindow
    start_ms: int
    tokens_by_phase: Mapping[Phase, IntArray]
    placement: PlacementSnapshot


def read_placed_load(
    store: Store,
    scopes: Sequence[LoadScope],
    window_seconds: float,
    settings: Settings,
    *,
    end_ms: int | None = None,
) -> PlacedLoad | None:
    """Read the load and the placement; arguments, result and errors as of :func:`read_failover_facts`."""
    end_ms = end_ms or max(scope.end_ms for scope in scopes)
    windows = [read_window(store, scope, window_seconds, settings, end_ms=end_ms) for scope in scopes]
    widest = max(windows, key=lambda window: len(window.layers))
    placement = read_placement(store, widest)
    if placement is None:
        return None
    tokens = {}
    for window in windows:
        of_phase = np.zeros(widest.tokens.shape, dtype=np.int64)
        of_phase[np.searchsorted(widest.layers, window.layers)] = window.tokens
        tokens[window.scope.phase] = locked_int64(of_phase)
    return PlacedLoad(widest, min(window.start_ms for window in windows), tokens, placement)


def read_failover_facts(
    store: Store,
    scopes: Sequence[LoadScope],
    window_seconds: float,
    settings: Settings,
    *,
    end_ms: int | None = None,
) -> FailoverFacts | None:
    """Read an EP group by the scopes of its phases; None where no rank said which experts it holds.

    Args:
        store: where the data is.
        scopes: the phases of one EP group, at least one.
        window_seconds: how far to look back.
        settings: thresholds and retention.
        end_ms: from where to look back, Unix milliseconds; None: the newest minute.

    Raises:
        StoreError: the store cannot answer.
    """
    load = read_placed_load(store, scopes, window_seconds, settings, end_ms=end_ms)
    if load is None:
        return None
    widest, placement, tokens = load.widest, load.placement, load.tokens_by_phase
    scope = widest.scope
    span = span_between(scope.service, scope.ep_group, load.start_ms, widest.end_ms)
    hosts = read_hosts(store, span)
    sizes = read_bytes_per_expert(store, scope, widest.layers, until_ms=span.end_ms)
    own, per_engine = _own_share(store, span, placement)
    return FailoverFacts(
        span,
        widest.layers,
        tokens,
        placement,
        _top_k(store, span, scope, tokens),
        tuple(hosts.get(rank, "") for rank in placement.ranks.tolist()),
        locked_float64(np.full(len(widest.layers), np.nan) if sizes is None else sizes),
        _free_bytes(store, span, placement.ranks, settings),
        own,
        per_engine,
        _tokens_per_request(store, span, settings),
        read_silent_ranks(store, scope.service, scope.ep_group, settings),
        read_failovers(store, span, limit=10_000),
    )


def _top_k(store: Store, span: Span, scope: LoadScope, tokens: Mapping[Phase, IntArray]) -> int:
    """As the ranks say it; else assignments over token rows."""
    answer = store.query("expert_top_k", service=scope.service, ep_group=scope.ep_group)
    said = int(column_as_array(answer, "top_k")[0])
    if said:
        return min(said, scope.experts)
    scheduled = int(column_as_array(store.query("rank_tokens", **span.params()), "tokens").sum())
    assigned = sum(float(one.sum()) / max(len(one), 1) for one in tokens.values())
    return int(np.clip(round(assigned / scheduled), 1, scope.experts)) if scheduled else 1


def _own_share(store: Store, span: Span, placement: PlacementSnapshot) -> tuple[FloatArray, int]:
    """Part of the tokens that each rank schedules, and how many ranks share an engine.

    Of the ranks of one engine, the first one counts its tokens.
    """
    table = store.query("rank_tokens", **span.params())
    of_rank = np.zeros(placement.ep_size)
    ranks = column_as_array(table, "ep_rank").astype(np.int64)
    known = ranks < placement.ep_size
    np.add.at(of_rank, ranks[known], column_as_array(table, "tokens")[known].astype(np.float64))
    counting = np.flatnonzero(of_rank)
    per_engine = int(np.gcd.reduce(np.append(counting, placement.ep_size)))
    if len(counting) * per_engine != placement.ep_size:
        per_engine = 1
    of_rank = np.repeat(of_rank[::per_engine], per_engine) / per_engine
    total = float(of_rank.sum())
    share = of_rank / total if total else np.full(placement.ep_size, 1 / placement.ep_size)
    return locked_float64(share[placement.ranks]), per_engine


def _free_bytes(store: Store, span: Span, ranks: IntArray, settings: Settings) -> FloatArray:
    """Device memory less what the pools may take."""
    device = np.full(len(ranks), np.nan)
    for gpu in read_gpus(store, span):
        rows = np.flatnonzero(ranks == gpu.ep_rank)
        if gpu.memory_limit_bytes is not None and len(rows):
            device[rows[0]] = np.nan_to_num(device[rows[0]]) + gpu.memory_limit_bytes
    memory = read_pool_memory(store, span, settings)
    reserved = np.full(len(ranks), np.nan)
    limits = np.where(np.isnan(memory.limit_bytes), memory.used_bytes, memory.limit_bytes)
    for row, rank in enumerate(memory.ranks):
        reserved[ranks == rank] = np.nansum(limits[row])
    free: FloatArray = lock(np.maximum(device - reserved, 0.0))
    return free


def _tokens_per_request(store: Store, span: Span, settings: Settings) -> float:
    """Computed tokens over finished requests; requests that began before or end later cancel out."""
    finished = read_goodput(store, span, settings).requests
    totals = read_computed_tokens(store, span).totals
    tokens = sum(totals.get(TokenKind(phase, Excluded.NONE), 0) for phase in Phase)
    return tokens / finished if finished and tokens else float("nan")
