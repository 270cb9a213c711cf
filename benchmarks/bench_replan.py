"""A re-plan that moves 5 % of the experts against EPLB's plan from scratch, on the window after it.

46 layers of 896 experts over 64 ranks with 64 redundant experts. In every window both plan on its counts and
are scored on those of the next. Each starts from its own last placement, all from EPLB's on the first one.
EPLB is vLLM's own ``DefaultEplbPolicy`` where it can be imported (it keeps slots within a rank, as in the
engine); elsewhere the same two greedy rules as written in tests/analysis/placements.py.

Moved: copies that a rank did not hold before, per physical expert and re-plan. CPU time of this process.

    python -m benchmarks.bench_replan
    python -m benchmarks.bench_replan --quick
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from benchmarks.machine import print_result
from moescope.analysis.placement_score import balance_ratio
from moescope.analysis.replan import align_slots, count_moves, replan
from moescope.schemas.topology import Placement
from tests.analysis.drifting_loads import KINDS, count_tokens, expected_shares
from tests.analysis.placements import pack_greedily

RANKS, REDUNDANT, EXPERTS = 64, 64, 896
WORST_DIFFERENCE = 0.01
MOVED_SHARE = 0.05

MakePlan = Callable[[np.ndarray, Placement], Placement]


@dataclass
class Planner:
    """A way to plan, and what came of it; one entry per window scored."""

    name: str
    make_plan: MakePlan
    ratios: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def step(
        self, counts: np.ndarray, following: np.ndarray, current: Placement, *, is_scored: bool
    ) -> Placement:
        start = time.process_time()
        plan = self.make_plan(counts, current)
        elapsed = time.process_time() - start
        if is_scored:
            physical = plan.physical_to_logical_map.size
            self.ratios.append(float(balance_ratio(following, plan).mean()))
            self.moved.append(float(count_moves(current, plan).sum() / physical))
            self.seconds.append(elapsed)
        return plan


def find_eplb() -> tuple[str, MakePlan]:
    try:
        import torch
        from vllm.distributed.eplb.policy.default import DefaultEplbPolicy
    except ImportError:
        return "EPLB's rules", lambda counts, _: pack_greedily(counts, ranks=RANKS, redundant=REDUNDANT)

    def plan(counts: np.ndarray, current: Placement | None) -> Placement:
        table = DefaultEplbPolicy.rebalance_experts(
            torch.from_numpy(counts.astype(np.float32)),
            EXPERTS + REDUNDANT,
            1,
            1,
            RANKS,
            None if current is None else torch.from_numpy(np.array(current.physical_to_logical_map)),
        )
        return Placement(table.numpy().astype(np.int64), RANKS, EXPERTS)

    return "EPLB (vLLM)", plan


def make_planners(eplb: tuple[str, MakePlan]) -> list[Planner]:
    name, full = eplb

    def relabelled(counts: np.ndarray, current: Placement) -> Placement:
        return align_slots(current, full(counts, current), relabel_ranks=True)

    def at_most(share: float | None) -> MakePlan:
        return lambda counts, current: replan(counts, current, max_moved_share=share).placement

    return [
        Planner("first plan kept", lambda _, current: current),
        Planner(name, full),
        Planner("  + ranks relabelled", relabelled),
        Planner("re-plan, 2 % moved", at_most(0.02)),
        Planner("re-plan, 5 % moved", at_most(MOVED_SHARE)),
        Planner("re-plan, no limit", at_most(None)),
    ]


def run(kind: str, *, layers: int, windows: int, assignments: int, seed: int) -> tuple[Planner, Planner]:
    """Run one kind of load; returns EPLB and the re-plan with 5 % moved."""
    shares = expected_shares(kind, windows=windows, layers=layers, experts=EXPERTS, seed=seed)
    counts = count_tokens(shares, assignments, seed=seed + 79).astype(float)
    eplb = find_eplb()
    planners = make_planners(eplb)
    first = eplb[1](counts[0], None)
    # After a switch, only the plan made from the first window behind it is of interest.
    first_scored = windows - 2 if kind == "regime switch" else 1
    for planner in planners:
        current = first
        for window in range(1, windows - 1):
            current = planner.step(
                counts[window], counts[window + 1], current, is_scored=window >= first_scored
            )
    for planner in planners:
        print(
            f"{kind:14s} {planner.name:22s} {np.mean(planner.ratios):8.4f} {np.max(planner.ratios):8.4f} "
            f"{100 * np.mean(planner.moved):7.2f} % {1000 * np.median(planner.seconds):8.0f} ms"
        )
    print(flush=True)
    return planners[1], planners[4]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few layers and windows: does it run at all?")
    parser.add_argument("--seed", type=int, default=23)
    parser.add_argument("--assignments", type=int, default=100_000, help="of each layer in a window")
    arguments = parser.parse_args()
    size = {"layers": 5, "windows": 4} if arguments.quick else {"layers": 46, "windows": 6}
    print(
        f"{size['layers']} layers × {EXPERTS} experts, {RANKS} ranks, {REDUNDANT} redundant, "
        f"{arguments.assignments:,} assignments a layer and window; ratio = max / mean, next window"
    )
    print(f"{'load':14s} {'plan':22s} {'ratio':>8s} {'worst':>8s} {'moved':>9s} {'CPU':>11s}")
    differences = {}
    for kind in KINDS:
        eplb, ours = run(kind, assignments=arguments.assignments, seed=arguments.seed, **size)
        differences[kind] = round(float(np.mean(ours.ratios) - np.mean(eplb.ratios)), 4)
    print_result(
        "re-plan at 5 % moved, next-window ratio above EPLB's full re-plan, worst load",
        max(differences.values()),
        "max / mean",
        at_most=WORST_DIFFERENCE,
        differences=differences,
    )


if __name__ == "__main__":
    main()
