"""How many series does the Prometheus page of a fleet have, at most, and what does it cost?

Every rank reports every metric of the registry with every value of every closed vocabulary, and every layer
has a verdict: no fleet of that size can have more.

    python benchmarks/cardinality_prometheus.py --ranks 64 --deployments 1
"""

from __future__ import annotations

import argparse
import itertools
import math
import resource
import time
from collections.abc import Iterator

import numpy as np

from moescope.exporters.page_source import Source
from moescope.exporters.prometheus import render_page
from moescope.exporters.prometheus_counts import PageCounts
from moescope.exporters.prometheus_judgement import contract_family, judged_families
from moescope.exporters.prometheus_state import FamilyState
from moescope.schemas import attributes as a
from moescope.schemas import metrics as m
from moescope.schemas.fleet import (
    AwaitedRank,
    FindingCount,
    FindingKind,
    FleetJudgement,
    GroupCover,
    LayerBalance,
    ListedExpert,
    PoolEnd,
    ReplanGain,
)
from moescope.schemas.metrics import METRICS, Encoding, Kind, Metric
from moescope.schemas.records import Distribution, IndexedCounts, Measurement, Record, Window
from moescope.schemas.settings import Settings
from moescope.schemas.topology import MODEL_SHAPES, ModelShape

LIMIT = 5_000
"""Series that a page of 64 K3 ranks must stay below."""

NS = 1_000_000_000
STRAGGLER_KINDS = ("slow_rank", "overloaded_rank", "slow_link", "slow_node")
VOCABULARIES = {
    a.PHASE: a.Phase,
    a.EXCLUDED: a.Excluded,
    a.STAGE: a.DispatchStage,
    a.POOL: a.MemoryPool,
    a.RESULT: a.CacheResult,
    a.CONTRACT: a.Contract,
    a.DIRECTION: a.Direction,
    a.SOURCE: a.DurationSource,
}
REASONS = {
    m.KDA_STATE_COPIES.name: a.CopyReason,
    m.EXPERT_FAILOVERS.name: a.FailoverReason,
    m.TELEMETRY_EXPORT_FAILURES.name: ("unavailable", "timeout", "resource_exhausted", "error"),
}


def full_window(shape: ModelShape, ranks: int, rank: int, *, end_ns: int = 0, seed: int = 13) -> Window:
    """Everything that one rank could ever report in one window."""
    rng = np.random.default_rng([seed, rank])
    records: list[Record] = []
    for metric in METRICS:
        keys = [key for key in metric.attributes if key in VOCABULARIES or key in {a.REASON, a.HW_ID}]
        for values in itertools.product(*(vocabulary(metric, key, rank) for key in keys)):
            attributes = dict(zip(keys, map(str, values), strict=True))
            records.append(record(metric, attributes, shape, ranks, rng))
    end_ns = end_ns or time.time_ns()
    return Window(end_ns - 10 * NS, end_ns, tuple(records))


def vocabulary(metric: Metric, key: str, rank: int):
    if key == a.HW_ID:
        return (f"GPU-{rank:08x}",)
    return tuple(REASONS[metric.name]) if key == a.REASON else tuple(VOCABULARIES[key])


def record(metric: Metric, attributes: dict, shape: ModelShape, ranks: int, rng) -> Record:
    if metric.is_index_encoded:
        width = {Encoding.BY_PEER_RANK: ranks, Encoding.BY_LAYER: shape.num_layers}.get(
            metric.encoding, shape.num_experts
        )
        by_layer = a.LAYER in metric.attributes and metric.encoding is Encoding.BY_EXPERT
        layers = shape.layer_index if by_layer else np.empty(0, dtype=np.int64)
        return IndexedCounts(metric, layers, rng.integers(1, 80, (len(layers) or 1, width)), attributes)
    if metric.kind is Kind.HISTOGRAM:
        counts = rng.integers(0, 80, len(metric.bounds) + 1)
        return Distribution(metric, counts, float(rng.integers(13, 7_919)), attributes)
    return Measurement(metric, int(rng.integers(1, 7_919)), attributes)


def full_judgement(shape: ModelShape, deployments: int, ranks: int, *, hot_experts: int) -> FleetJudgement:
    """A verdict on every layer, every rank late in every way, a hundred times the hot experts of a page."""
    groups = [(f"service-{number}", "0") for number in range(deployments)]
    layers = len(shape.moe_layers)
    return FleetJudgement(
        tuple(
            LayerBalance(
                *(service, group, phase, shape.layer_index),
                ratio=np.linspace(1.3, 2.3, layers),
                net_ratio=np.linspace(1.0, 2.0, layers),
                ranks=np.arange(ranks),
                load_share=np.full(ranks, 1 / ranks),
            )
            for service, group in groups
            for phase in a.Phase
        ),
        tuple(
            ListedExpert(
                *groups[number % deployments],
                a.Phase.DECODE,
                1 + number % layers,
                number,
                times_median=2.3,
                capacity_share=0.23,
                is_harmful=True,
            )
            for number in range(100 * hot_experts)
        ),
        awaited=tuple(
            AwaitedRank(*group, rank, kind, 3.7)
            for group in groups
            for rank in range(ranks)
            for kind in STRAGGLER_KINDS
        ),
        pool_ends=tuple(PoolEnd(*group, 0, pool, 1_300.0) for group in groups for pool in a.MemoryPool),
        covers=tuple(GroupCover(*group, 0, 0.023, 0.79) for group in groups),
        replans=tuple(ReplanGain(*group, phase, 0.13) for group in groups for phase in a.Phase),
        findings=tuple(FindingCount(*group, kind, 0) for group in groups for kind in FindingKind),
    )


def fill(shape: ModelShape, ranks: int, deployments: int) -> tuple[PageCounts, float]:
    """A page that has heard everything once, and the seconds that one window took."""
    counts = PageCounts()
    seconds = math.inf
    for deployment, rank in itertools.product(range(deployments), range(ranks)):
        window = full_window(shape, ranks, rank)
        started = time.perf_counter()
        counts.add(Source(f"service-{deployment}", "0", str(rank), a.Component.RANK.value, "one"), window)
        seconds = min(seconds, time.perf_counter() - started)
    return counts, seconds


def all_families(
    counts: PageCounts, shape: ModelShape, ranks: int, deployments: int
) -> tuple[FamilyState, ...]:
    hot_experts = Settings().fleet_page_hot_experts
    judgement = full_judgement(shape, deployments, ranks, hot_experts=hot_experts)
    contract = contract_family(ttft_seconds=2.0, tpot_seconds=0.1)
    return (*counts.snapshot(), contract, *judged_families(judgement, hot_experts=hot_experts))


def lines(families: tuple[FamilyState, ...]) -> Iterator[str]:
    for family in sorted(families, key=lambda family: -family.num_series):
        yield f"{family.num_series:7,}  {family.metric.prometheus_name:45}  {', '.join(family.label_names)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=sorted(MODEL_SHAPES), default="kimi-k3")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--deployments", type=int, default=1)
    arguments = parser.parse_args()
    shape, ranks, deployments = MODEL_SHAPES[arguments.model], arguments.ranks, arguments.deployments

    counts, add_seconds = fill(shape, ranks, deployments)
    families = all_families(counts, shape, ranks, deployments)
    render_seconds, page = math.inf, b""
    for _ in range(3):
        started = time.perf_counter()
        page = render_page(all_families(counts, shape, ranks, deployments))
        render_seconds = min(render_seconds, time.perf_counter() - started)
    total = sum(family.num_series for family in families)
    print("\n".join(lines(families)))
    print(f"{total:7,}  series at most: {deployments} × {ranks} ranks of {shape.name}")
    print(
        f"         a window {add_seconds * 1e3:.1f} ms, a scrape {render_seconds * 1e3:.0f} ms and "
        f"{len(page) / 1024:.0f} KiB, peak memory of the process "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"
    )
    is_named_case = (arguments.model, ranks, deployments) == ("kimi-k3", 64, 1)
    return int(is_named_case and total >= LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
