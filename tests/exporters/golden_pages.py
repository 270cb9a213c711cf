"""The pages that pin all names and labels: `python -m tests.exporters.golden_pages` writes them.

Small on purpose: two ranks of a model with two MoE layers, each reporting all that the registry has.
"""

import dataclasses
from pathlib import Path

import numpy as np

from benchmarks.cardinality_prometheus import full_window
from moescope.exporters.page_source import Source
from moescope.exporters.prometheus import render_page
from moescope.exporters.prometheus_counts import PageCounts
from moescope.exporters.prometheus_judgement import contract_family, judged_families
from moescope.schemas.attributes import Component, MemoryPool, Phase
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
from moescope.schemas.topology import ModelShape

FOLDER = Path(__file__).parent / "golden"
TINY = ModelShape("tiny", 3, (1, 2), 5, 2)
NOW_NS = 1_796_000_000 * 10**9
JUDGEMENT = FleetJudgement(
    (
        LayerBalance(
            *("fleet", "0", Phase.DECODE, np.array([1, 2])),
            ratio=np.array([2.3, np.nan]),
            net_ratio=np.array([2.13, np.nan]),
            ranks=np.array([0, 1]),
            load_share=np.array([0.79, 0.21]),
        ),
    ),
    (
        ListedExpert("fleet", "0", Phase.DECODE, 1, 4, times_median=7.9, capacity_share=1.3, is_harmful=True),
        ListedExpert(
            "fleet", "0", Phase.DECODE, 2, 3, times_median=2.3, capacity_share=0.23, is_harmful=False
        ),
    ),
    awaited=(
        AwaitedRank("fleet", "0", 1, "slow_rank", 3.7),
        AwaitedRank("fleet", "0", 0, "slow_link", 7.9),
    ),
    pool_ends=(
        PoolEnd("fleet", "0", 1, MemoryPool.KDA_STATE, 1_300.0),
        PoolEnd("fleet", "0", 0, MemoryPool.MLA_KV_CACHE, 7_900.0),
    ),
    covers=(GroupCover("fleet", "0", 0, lost_share=0.79, uncovered_share=0.97),),
    replans=(ReplanGain("fleet", "0", Phase.DECODE, 0.23),),
    findings=tuple(FindingCount("fleet", "0", kind, number) for number, kind in enumerate(FindingKind)),
)


def page_counts(**arguments) -> PageCounts:
    """An empty page whose clocks stand still."""
    return PageCounts(**{"monotonic": lambda: 0.0, "clock_ns": lambda: NOW_NS, **arguments})


def source(rank: int = 0, **changes) -> Source:
    made = Source("fleet", "0", str(rank), Component.RANK.value, f"instance-{rank}")
    return dataclasses.replace(made, **changes)


def fleet_page() -> bytes:
    """What the server shows of a fleet."""
    counts = page_counts()
    for rank in range(2):
        counts.add(source(rank), full_window(TINY, 2, rank, end_ns=NOW_NS - (13 + rank) * 10**9))
    contract = contract_family(ttft_seconds=2.0, tpot_seconds=0.1)
    return render_page((*counts.snapshot(), contract, *judged_families(JUDGEMENT, hot_experts=20)))


def rank_page() -> bytes:
    """What one engine shows of itself."""
    counts = page_counts()
    counts.add(source(1), full_window(TINY, 2, 1, end_ns=NOW_NS))
    return render_page(counts.snapshot())


PAGES = {"fleet.prom": fleet_page, "rank.prom": rank_page}


if __name__ == "__main__":
    for name, make in PAGES.items():
        (FOLDER / name).write_bytes(make())
