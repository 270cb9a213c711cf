"""Expert load whose every count is known, written straight into the landing tables of a store.

The materialized views do the rest, so what a test reads went through the same tables as an engine's data.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import clickhouse_connect
import numpy as np
import pyarrow as pa

from moescope.schemas import attributes as a
from moescope.schemas import metrics, migrate
from moescope.schemas.attributes import Excluded, Phase
from moescope.schemas.settings import Settings

MINUTE_SECONDS = 60
DELTA = 1
_STRING_MAP = pa.map_(pa.string(), pa.string())
_NS = 1_000_000_000


def this_minute_s() -> int:
    """When the minute began that it is now, Unix seconds."""
    return int(time.time()) // MINUTE_SECONDS * MINUTE_SECONDS


BEGUN_S = this_minute_s()
"""When this run of the tests began: all fleets end together, wherever in the run each of them is made."""


@dataclass(frozen=True)
class KnownFleet:
    """A fleet of known shape; ``hot`` multiplies the rate of (phase, layer, expert).

    ``tokens_per_minute`` is scheduled in each phase; every layer gets exactly that × top_k assignments,
    spread by lognormal rates (``sigma`` 0 is a uniform router) over experts that stand in contiguous blocks
    on the ranks. It ends when the run of the tests began, which is old before the run is over; what must be
    of now says ``end_s=this_minute_s()`` where it is written.
    """

    service: str = "known-fleet"
    ep_group: str = "0"
    num_layers: int = 5
    first_layer: int = 1
    num_experts: int = 64
    top_k: int = 4
    num_ranks: int = 8
    minutes: int = 5
    tokens_per_minute: int = 7_919
    sigma: float = 0.0
    phases: tuple[Phase, ...] = (Phase.PREFILL, Phase.DECODE)
    hot: dict[tuple[Phase, int, int], float] = field(default_factory=dict)
    seed: int = 79
    end_s: int = BEGUN_S

    @property
    def layers(self) -> np.ndarray:
        return np.arange(self.first_layer, self.first_layer + self.num_layers)

    def counts(self, phase: Phase) -> np.ndarray:
        """int64 ``[minutes, layers, experts]``, the same at every call."""
        rng = np.random.default_rng([self.seed, list(Phase).index(phase)])
        rates = rng.lognormal(0, self.sigma, (self.num_layers, self.num_experts))
        for (hot_phase, layer, expert), times in self.hot.items():
            if hot_phase is phase:
                rates[layer - self.first_layer, expert] *= times
        shares = rates / rates.sum(axis=1, keepdims=True)
        assignments = self.tokens_per_minute * self.top_k
        return np.stack(
            [[rng.multinomial(assignments, share) for share in shares] for _ in range(self.minutes)]
        ).astype(np.int64)

    def replicas(self) -> np.ndarray:
        """int64 ``[ranks, layers, experts]``."""
        rank_of_expert = np.arange(self.num_experts) * self.num_ranks // self.num_experts
        held = rank_of_expert == np.arange(self.num_ranks)[:, None]
        return np.repeat(held[:, None, :], self.num_layers, axis=1).astype(np.int64)


def write_fleet(
    client: object, fleet: KnownFleet, *, counting_rank: int = 0, reported_ranks: range | None = None
) -> None:
    """Insert a fleet: one process counts for the group; ``reported_ranks`` tell their placement."""
    load, totals = [], []
    for phase in fleet.phases:
        for minute, counts in enumerate(fleet.counts(phase)):
            end_s = fleet.end_s - (fleet.minutes - 1 - minute) * MINUTE_SECONDS
            window = (end_s - MINUTE_SECONDS, end_s)
            load.append(_index_rows(fleet, metrics.EXPERT_TOKENS.name, counting_rank, window, counts, phase))
            totals.append(_token_row(fleet, counting_rank, window, phase))
    replicas = fleet.replicas()
    window = (
        fleet.end_s - fleet.minutes * MINUTE_SECONDS,
        fleet.end_s - (fleet.minutes - 1) * MINUTE_SECONDS,
    )
    load.extend(
        _index_rows(fleet, metrics.EXPERT_REPLICAS.name, rank, window, replicas[rank])
        for rank in (range(fleet.num_ranks) if reported_ranks is None else reported_ranks)
    )
    client.insert_arrow("otel_metrics_histogram", pa.concat_tables(load))
    client.insert_arrow("otel_metrics_sum", pa.concat_tables(totals))


def make_store(path: object, *fleets: KnownFleet, settings: Settings | None = None) -> str:
    """Create a migrated embedded store at ``path`` with these fleets in it; return its DSN."""
    dsn = f"chdb://{path}"
    settings = settings or Settings()
    client = clickhouse_connect.get_client(dsn=dsn)
    try:
        migrate.apply(client, settings)
    finally:
        client.close()
    client = clickhouse_connect.get_client(dsn=dsn, database=settings.database)
    try:
        for fleet in fleets:
            write_fleet(client, fleet)
    finally:
        client.close()
    return dsn


def _resource(fleet: KnownFleet, rank: int) -> list[tuple[str, str]]:
    return [
        (a.SERVICE_INSTANCE_ID, f"{fleet.service}-{fleet.ep_group}-{rank}"),
        (a.EP_GROUP, fleet.ep_group),
        (a.EP_RANK, str(rank)),
        (a.EP_SIZE, str(fleet.num_ranks)),
        (a.MODEL_TOP_K, str(fleet.top_k)),
        (a.MODEL_MOE_LAYERS, str(fleet.num_layers)),
    ]


def _common(fleet, metric, rank, window, attributes):
    rows = len(attributes)
    return {
        "ResourceAttributes": pa.array([_resource(fleet, rank)] * rows, _STRING_MAP),
        "Attributes": pa.array(attributes, _STRING_MAP),
        "ServiceName": pa.array([fleet.service] * rows),
        "MetricName": pa.array([metric] * rows),
        "StartTimeUnix": pa.array([window[0] * _NS] * rows, pa.timestamp("ns", "UTC")),
        "TimeUnix": pa.array([window[1] * _NS] * rows, pa.timestamp("ns", "UTC")),
        "AggregationTemporality": pa.array([DELTA] * rows, pa.int32()),
    }


def _index_rows(fleet, metric, rank, window, counts, phase=None):  # noqa: PLR0917 - what a point has
    shared = [] if phase is None else [(a.PHASE, phase.value)]
    attributes = [[(a.LAYER, str(layer)), *shared] for layer in fleet.layers]
    offsets = pa.array(np.arange(len(counts) + 1, dtype=np.int32) * counts.shape[1])
    buckets = pa.ListArray.from_arrays(offsets, pa.array(counts.ravel().astype(np.uint64)))
    return pa.table(
        _common(fleet, metric, rank, window, attributes)
        | {"Count": pa.array(counts.sum(axis=1).astype(np.uint64)), "BucketCounts": buckets}
    )


def _token_row(fleet, rank, window, phase):
    attributes = [[(a.PHASE, phase.value), (a.EXCLUDED, Excluded.NONE.value)]]
    return pa.table(
        _common(fleet, metrics.TOKENS.name, rank, window, attributes)
        | {"Value": pa.array([float(fleet.tokens_per_minute)]), "IsMonotonic": pa.array([True])}
    )


def assess_fleet(
    fleet: KnownFleet, phase: Phase, *, ranks: range | None = None, settings: Settings | None = None
):
    """Judge a fleet without a store; only ``ranks`` told their placement (all if None, no rank if empty)."""
    from moescope.analysis.assessment import assess_load
    from moescope.analysis.clustering import sum_intervals
    from moescope.analysis.expert_load import MINUTES, ExpertLoadWindow, LoadScope
    from moescope.analysis.placement import PlacementSnapshot

    counts = fleet.counts(phase)
    start_ms, end_ms = (fleet.end_s - fleet.minutes * MINUTE_SECONDS) * 1000, fleet.end_s * 1000
    scope = LoadScope(
        fleet.service, fleet.ep_group, phase, fleet.num_experts, fleet.num_layers, start_ms, end_ms
    )
    window = ExpertLoadWindow(
        *(scope, MINUTES, start_ms, end_ms, fleet.layers, counts.sum(axis=0), sum_intervals(counts)),
        np.full(fleet.num_layers, fleet.minutes),
    )
    kept = np.arange(fleet.num_ranks) if ranks is None else np.asarray(ranks, dtype=np.int64)
    replicas = fleet.replicas()[kept].astype(np.uint16)
    placement = PlacementSnapshot(end_ms, fleet.num_ranks, kept, replicas) if len(kept) else None
    return assess_load(window, placement, settings or Settings())
