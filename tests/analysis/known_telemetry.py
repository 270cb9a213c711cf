"""Every metric beside the expert load, in known odd amounts, on the way that an engine's take.

A tally counts, the packer writes OTLP, the server's decoder and landing make rows of it, and the store's
materialized views do the rest. Only the sockets are left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

import clickhouse_connect
import numpy as np

from moescope.collector.requests import FinishedRequest, RequestMetrics
from moescope.collector.tally import Tally
from moescope.exporters.otlp_wire import OtlpPacker
from moescope.schemas import attributes as a
from moescope.schemas import metrics
from moescope.schemas.attributes import (
    CacheResult,
    Component,
    CopyReason,
    Direction,
    DispatchStage,
    Excluded,
    FailoverReason,
    MemoryPool,
    Phase,
)
from moescope.schemas.identity import EngineIdentity, ProcessIdentity
from moescope.schemas.records import Window
from moescope.schemas.settings import Settings
from moescope.schemas.topology import RankGrid, every_layer_from
from moescope.server.landed_request import LandedRequest, combine, digest_of
from moescope.server.landing import land
from moescope.server.otlp_decode import Encoding, decode
from tests.analysis.known_workloads import MINUTE_SECONDS, KnownFleet, make_store

RANKS_PER_HOST = 4
GIB = 2**30
POOL_GIB = {
    MemoryPool.WEIGHTS: (79, 80),
    MemoryPool.RUNTIME: (7, 13),
    MemoryPool.KDA_STATE: (3, 5),
    MemoryPool.MLA_KV_CACHE: (23, 29),
    MemoryPool.REPLICATION: (2, None),
    MemoryPool.TRANSFER: (1, 3),
}
"""Used and limit of every rank; the last rank's KDA state takes all but a hundredth of its limit."""

TTFT_SECONDS, TPOT_SECONDS, QUEUE_SECONDS = 0.3, 0.02, 0.13
"""Of a good request; every fourth takes ten times as long to its first token."""

FAILED_EXPERT = 7
"""Of the third layer: another copy serves for it seven times a minute."""

GOOD_REQUESTS, SLOW_REQUESTS, OUTPUT_TOKENS = 13, 7, 23
"""A minute, all of the same length. Three seconds to the first token miss the contract."""

Parts = frozenset[str]
REQUESTS, DISPATCH, TRAFFIC, WAITS, STEPS, MEMORY, CACHES, GPUS, COSTS, FAILOVERS = ALL_PARTS = (
    *("requests", "dispatch", "traffic", "waits", "steps", "memory", "caches", "gpus", "costs", "failovers"),
)


def make_telemetry_store(path: object, fleet: KnownFleet, parts: Iterable[str] = ALL_PARTS) -> str:
    """Create a store with a fleet's expert load and the other metrics of its processes; return its DSN."""
    dsn = make_store(path, fleet)
    client = clickhouse_connect.get_client(dsn=dsn, database=Settings().database)
    try:
        write_telemetry(client, fleet, frozenset(parts))
    finally:
        client.close()
    return dsn


def write_telemetry(client: object, fleet: KnownFleet, parts: Parts) -> None:
    """Write what every process of a fleet says in every minute."""
    ranks = [_Process(rank_identity(fleet, rank)) for rank in range(fleet.num_ranks)]
    scheduler = _Process(process_identity(fleet, Component.SCHEDULER))
    frontend = _Process(process_identity(fleet, Component.FRONTEND))
    landed: list[LandedRequest] = []
    for minute in range(fleet.minutes):
        for rank, process in enumerate(ranks):
            count_rank(process.tally, fleet, rank, parts)
        if CACHES in parts:
            count_scheduler(scheduler.tally, minute)
        if REQUESTS in parts:
            count_frontend(frontend.tally, fleet)
        for process in (*ranks, scheduler, frontend):
            landed += process.close_window(*minute_of(fleet, minute), is_first=minute == 0)
    for name, table in combine(landed).items():
        client.insert_arrow(name, table)


def rank_identity(fleet: KnownFleet, rank: int) -> EngineIdentity:
    """A rank, with the instance id that its expert load has."""
    shape = every_layer_from(
        *("known-model", fleet.first_layer, fleet.first_layer + fleet.num_layers),
        num_experts=fleet.num_experts,
        top_k=fleet.top_k,
    )
    return EngineIdentity(
        *(fleet.service, shape, RankGrid(fleet.ep_group, rank, fleet.num_ranks)),
        instance=f"{fleet.service}-{fleet.ep_group}-{rank}",
        host=f"node-{rank // RANKS_PER_HOST}",
    )


def process_identity(fleet: KnownFleet, component: Component) -> ProcessIdentity:
    """A process without experts that speaks for the fleet's first rank."""
    return ProcessIdentity(
        *(fleet.service, component, "known-model", RankGrid(fleet.ep_group, 0, fleet.num_ranks)),
        instance=f"{fleet.service}-{fleet.ep_group}-{component.value}",
        host="node-0",
    )


def minute_of(fleet: KnownFleet, minute: int) -> tuple[int, int]:
    """Start and end of a minute of a fleet, Unix seconds."""
    end_s = fleet.end_s - (fleet.minutes - 1 - minute) * MINUTE_SECONDS
    return end_s - MINUTE_SECONDS, end_s


def bytes_between(rank: int, peer: int) -> int:
    """What a rank sends to a peer in a minute and phase: an odd number that names the pair."""
    return 1_000_003 * (rank + 1) + 13 * peer


def wait_ns(rank: int, peer: int, ranks: int) -> int:
    """What a rank waits for a peer in a minute: all of them wait longest for the last rank."""
    return 0 if rank == peer else 23_000_000 if peer == ranks - 1 else 7_000


def count_rank(tally: Tally, fleet: KnownFleet, rank: int, parts: Parts) -> None:
    """What one rank counts in one minute."""
    counts: dict[str, Callable[[Tally, KnownFleet, int], None]] = {
        DISPATCH: _count_dispatch,
        TRAFFIC: _count_traffic,
        WAITS: _count_waits,
        STEPS: _count_steps,
        MEMORY: _count_memory,
        GPUS: _count_gpu,
        COSTS: _count_costs,
        FAILOVERS: _count_failovers,
    }
    for part, count in counts.items():
        if part in parts:
            count(tally, fleet, rank)


def _count_dispatch(tally, fleet, rank):
    for phase, stage in itertools.product(fleet.phases, DispatchStage):
        seconds = 0.0013 if phase is Phase.DECODE else 0.013
        attributes = {a.STAGE: stage.value, a.PHASE: phase.value}
        tally.observe(metrics.DISPATCH_DURATION, seconds, attributes, times=79)


def _count_traffic(tally, fleet, rank):
    peers = np.arange(fleet.num_ranks)
    sent = np.array([[bytes_between(rank, peer) for peer in peers]])
    received = np.array([[bytes_between(peer, rank) for peer in peers]])
    for phase in fleet.phases:
        of_phase = {a.PHASE: phase.value}
        tally.add_indexed(metrics.RANK_IO, sent, of_phase | {a.DIRECTION: Direction.TRANSMIT.value})
        tally.add_indexed(metrics.RANK_IO, received, of_phase | {a.DIRECTION: Direction.RECEIVE.value})
        tally.add_indexed(metrics.RANK_TOKENS, np.full((1, len(peers)), 23), of_phase)
        tally.add_indexed(metrics.RANK_ASSIGNMENTS, np.full((1, len(peers)), 79), of_phase)


def _count_waits(tally, fleet, rank):
    if fleet.num_ranks == 1:
        return
    waits = np.array([[wait_ns(rank, peer, fleet.num_ranks) for peer in range(fleet.num_ranks)]])
    for stage in DispatchStage:
        tally.add_indexed(metrics.DISPATCH_WAIT, waits, {a.STAGE: stage.value})


def _count_steps(tally, fleet, rank):
    for phase in fleet.phases:
        tally.observe(metrics.STEP_DURATION, 0.03, {a.PHASE: phase.value}, times=13)
        tally.observe(metrics.STEP_TOKENS, 79, {a.PHASE: phase.value}, times=13)
    excluded = {a.PHASE: Phase.DECODE.value, a.EXCLUDED: Excluded.PADDING.value}
    tally.add(metrics.TOKENS, 23, excluded)


def _count_memory(tally, fleet, rank):
    for pool, (usual, limit) in POOL_GIB.items():
        is_full = pool is MemoryPool.KDA_STATE and rank == fleet.num_ranks - 1
        used = 0.99 * limit if is_full else usual
        tally.set_state(metrics.MEMORY_USAGE, used * GIB, {a.POOL: pool.value})
        if limit is not None:
            tally.set_state(metrics.MEMORY_LIMIT, limit * GIB, {a.POOL: pool.value})


def _count_gpu(tally, fleet, rank):
    gpu = {a.HW_ID: f"GPU-{rank}"}
    tally.set_state(metrics.GPU_UTILIZATION, 0.79, gpu)
    tally.set_state(metrics.GPU_MEMORY_USAGE, 115 * GIB, gpu)
    tally.set_state(metrics.GPU_MEMORY_LIMIT, 141 * GIB, gpu)
    tally.add(metrics.GPU_IO, 7_919_000_000, gpu | {a.DIRECTION: Direction.TRANSMIT.value})


def _count_costs(tally, fleet, rank):
    by_layer = np.zeros((1, fleet.first_layer + fleet.num_layers), dtype=np.int64)
    by_layer[0, fleet.first_layer :] = 79_000_000
    for phase in fleet.phases:
        tally.add_indexed(metrics.EXPERT_GROUP_DURATION, by_layer, {a.PHASE: phase.value})
    tally.set_state(metrics.EXPERT_WEIGHT_SIZE, 13_000_001)


def _count_failovers(tally, fleet, rank):
    if rank:
        return
    by_expert = np.zeros((1, fleet.num_experts), dtype=np.int64)
    by_expert[0, FAILED_EXPERT] = 7
    tally.add_indexed(
        *(metrics.EXPERT_FAILOVERS, by_expert, {a.REASON: FailoverReason.RANK_DOWN.value}),
        layers=np.array([fleet.first_layer + 2]),
    )


def count_scheduler(tally: Tally, minute: int) -> None:
    """What a scheduler knows: both caches, the prefix cache, the queue."""
    tally.set_state(metrics.KDA_STATE_SLOTS, 79)
    tally.set_state(metrics.KDA_STATE_SLOTS_LIMIT, 128)
    tally.set_state(metrics.MLA_KV_CACHE_BLOCKS, 2_300 + minute)
    tally.set_state(metrics.MLA_KV_CACHE_BLOCKS_LIMIT, 7_919)
    tally.add(metrics.KDA_STATE_COPIES, 7, {a.REASON: CopyReason.COPY_ON_WRITE.value})
    tally.add(metrics.KDA_STATE_COPIES, 3, {a.REASON: CopyReason.CHECKPOINT.value})
    for result, tokens in zip(CacheResult, (700, 130, 170), strict=True):
        tally.add(metrics.PREFIX_CACHE_TOKENS, tokens, {a.RESULT: result.value})


def count_frontend(tally: Tally, fleet: KnownFleet) -> None:
    """The requests of one minute."""
    requests = RequestMetrics(tally, model="known-model", provider="custom", settings=Settings())
    for is_good, number in ((True, GOOD_REQUESTS), (False, SLOW_REQUESTS)):
        ttft = TTFT_SECONDS if is_good else 10 * TTFT_SECONDS
        for _ in range(number):
            requests.first_token(ttft)
            requests.next_tokens(TPOT_SECONDS, times=OUTPUT_TOKENS - 1)
            whole = ttft + (OUTPUT_TOKENS - 1) * TPOT_SECONDS
            requests.finished(FinishedRequest(whole, ttft, OUTPUT_TOKENS, QUEUE_SECONDS))
    tally.set_state(metrics.REQUESTS_RUNNING, 23)
    tally.set_state(metrics.REQUESTS_WAITING, 7)


class _Process:
    """One process: what it counts, and how it is written."""

    def __init__(self, identity: EngineIdentity | ProcessIdentity) -> None:
        self.tally = Tally()
        self._packer = OtlpPacker(identity.resource_attributes())

    def close_window(self, start_s: int, end_s: int, *, is_first: bool) -> Iterator[LandedRequest]:
        self.tally.set_state(metrics.TELEMETRY_QUEUE_SIZE, 0)
        records = self.tally.close_window(snapshot=is_first)
        for body in self._packer.pack(Window(start_s * 10**9, end_s * 10**9, records)):
            tables = land(decode(body, Encoding.PROTOBUF), max_request_bytes=2**24)
            yield LandedRequest(digest_of(body), tables, len(body))
