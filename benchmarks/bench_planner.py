"""The replication planner beside vLLM's own, on the same loads, in turn: balance and CPU time.

The reference is `DefaultEplbPolicy.rebalance_experts` of the installed engine. A layer is compared where both
plans keep copies of an expert on distinct ranks; where the reference does not, that is counted and said. With
`--quick` a smoke test of speed; a layer that is worse fails it too. The comparison with an exact solver is
`bench_planner_exact.py`.
"""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from machine import print_result
from planner_loads import FUZZED_SHAPES, SPREADS, fuzzed_loads, spread_load

from moescope.analysis.placement_score import balance_ratio
from moescope.analysis.replication import AT_BOUND, PlanRules, ReplicationPlan, plan_replication
from moescope.schemas.topology import Placement

IS_QUICK = "--quick" in sys.argv
REPEATS = 1 if IS_QUICK else 3
SHAPES = (
    (8 if IS_QUICK else 92, 896, 64, (0, 32, 64, 128, 192)),
    (8 if IS_QUICK else 58, 256, 64, (0, 64, 128)),
    (8 if IS_QUICK else 94, 128, 16, (0, 16, 32)),
)
FUZZED_LAYERS = 1 if IS_QUICK else 9
FASTER = 3.0
ROUNDING = 1 + 1e-9


@dataclass
class Verdict:
    """What the runs add up to."""

    compared: int = 0
    worse: int = 0
    better: int = 0
    twins: int = 0
    worse_than_twins: int = 0
    far_from_bound: int = 0

    def compare(self, plan: ReplicationPlan, theirs: Placement, tokens: Any) -> str:
        """Count a run's layers; what to print of them."""
        ratio = balance_ratio(tokens, theirs)
        apart = np.array([_twins(theirs, layer) == 0 for layer in range(len(tokens))])
        worse = plan.ratio > ratio * ROUNDING
        self.compared += int(apart.sum())
        self.worse += int((worse & apart).sum())
        self.better += int((apart & (plan.ratio * (1 + AT_BOUND) < ratio)).sum())
        self.twins += int((~apart).sum())
        self.worse_than_twins += int((worse & ~apart).sum())
        note = f", {int((worse & apart).sum())} LAYERS WORSE" if (worse & apart).any() else ""
        twins = f", twins in {int((~apart).sum())} layers" if not apart.all() else ""
        return f"vLLM {ratio.mean():.4f} (worst {ratio.max():.4f}{twins}){note}"


def _twins(placement: Placement, layer: int) -> int:
    table = placement.physical_to_logical_map[layer : layer + 1]
    return Placement(table, placement.ep_size, placement.num_experts).same_rank_duplicates()


def reference(tokens: Any, ranks: int, redundant: int, *, groups: int = 1, nodes: int = 1) -> Any:
    """vLLM's map, int64 `[layers, slots]`."""
    import torch
    from vllm.distributed.eplb.policy.default import DefaultEplbPolicy

    copies = tokens.shape[1] + redundant
    weight = torch.from_numpy(np.asarray(tokens, dtype=np.float64))
    return DefaultEplbPolicy.rebalance_experts(weight, copies, groups, nodes, ranks).numpy()


def cpu_milliseconds(run: Any) -> tuple[float, Any]:
    started = time.process_time()
    result = run()
    return (time.process_time() - started) * 1000, result


def compare_shape(shape: tuple[int, int, int, tuple[int, ...]], verdict: Verdict) -> dict[int, float]:
    """Print a line per load and redundancy; the CPU time of vLLM over ours, by redundancy."""
    layers, experts, ranks, redundancies = shape
    faster = {}
    print(f"\n{layers} layers × {experts} experts on {ranks} ranks; max / mean, CPU time of all layers")
    for redundant in redundancies:
        spent = np.zeros(2)
        for kind, parameter in SPREADS:
            tokens = spread_load(kind, parameter, layers, experts)
            times, plan, theirs = compare_load(tokens, ranks, redundant)
            far = int((~plan.is_at_bound).sum())
            verdict.far_from_bound += far if redundant >= ranks else 0
            excess = float((plan.ratio / plan.bound - 1).max())
            line = f"  {redundant:3} spare, {kind} {parameter:<4}: ours {plan.ratio.mean():.4f} "
            line += f"(worst {excess * 100:.3f} % over the bound)"
            if theirs is None:
                print(f"{line}; vLLM refuses: {experts + redundant} slots do not divide by {ranks}")
                continue
            line += f", {verdict.compare(plan, theirs, tokens)}"
            spent += times
            print(f"{line}; {times[0]:.0f} ms and {times[1]:.0f} ms: {times[1] / times[0]:.1f} × faster")
        if spent.all():
            faster[redundant] = float(spent[1] / spent[0])
            print(f"  {redundant:3} spare, all loads: {faster[redundant]:.1f} × faster")
    return faster


def compare_load(tokens: Any, ranks: int, redundant: int) -> tuple[Any, ReplicationPlan, Placement | None]:
    """Plan with both, in turn; the smallest CPU times, our plan and theirs."""
    rules = PlanRules(ranks=ranks, redundant_experts=redundant)
    experts = tokens.shape[1]
    times = np.full(2, np.inf)
    table = None
    is_accepted = (experts + redundant) % ranks == 0
    for _ in range(REPEATS if is_accepted else 1):
        spent, plan = cpu_milliseconds(lambda: plan_replication(tokens, rules))
        times[0] = min(times[0], spent)
        if is_accepted:
            spent, table = cpu_milliseconds(lambda: reference(tokens, ranks, redundant))
            times[1] = min(times[1], spent)
    return times, plan, None if table is None else Placement(table, ranks, experts)


def compare_fuzzed(verdict: Verdict) -> None:
    """Loads that break planners, in shapes down to four experts."""
    by_kind: dict[str, Verdict] = {}
    for seed, (experts, ranks, redundant) in enumerate(FUZZED_SHAPES):
        for kind, tokens in fuzzed_loads(FUZZED_LAYERS, experts, ranks, seed):
            plan = plan_replication(tokens, PlanRules(ranks=ranks, redundant_experts=redundant))
            theirs = Placement(reference(tokens, ranks, redundant), ranks, experts)
            for part in (verdict, by_kind.setdefault(kind, Verdict())):
                part.compare(plan, theirs, tokens)
    layers = sum(part.compared + part.twins for part in by_kind.values())
    print(f"\n{layers} fuzzed layers in {len(FUZZED_SHAPES)} shapes")
    for kind, part in by_kind.items():
        print(
            f"  {kind}: {part.compared} compared, {part.better} better, {part.worse} worse; "
            f"twins in {part.twins}, of which {part.worse_than_twins} balance better than is allowed"
        )


def compare_groups(verdict: Verdict) -> None:
    """Expert groups that stay on one node, as in DeepSeek-V3: 256 experts in 8 groups."""
    layers = 8 if IS_QUICK else 58
    print(f"\n{layers} layers × 256 experts in 8 groups on 32 ranks, 32 spare; what is over the bound")
    for nodes in (2, 4, 8):
        rules = PlanRules(ranks=32, redundant_experts=32, nodes=nodes, expert_groups=8)
        for kind, parameter in SPREADS:
            tokens = spread_load(kind, parameter, layers, 256)
            plan = plan_replication(tokens, rules)
            theirs = Placement(reference(tokens, 32, 32, groups=8, nodes=nodes), 32, 256)
            excess = (plan.ratio / plan.bound - 1).max() * 100
            line = f"  {nodes} nodes, {kind} {parameter:<4}: ours {plan.ratio.mean():.4f} "
            line += f"(worst {excess:.3f} % over the bound)"
            print(f"{line}, {verdict.compare(plan, theirs, tokens)}")


def compare_published(verdict: Verdict) -> None:
    """The example that DeepSeek's EPLB is published with: expert groups on two nodes."""
    tokens = np.array(PUBLISHED["weight"])
    rules = PlanRules(ranks=8, redundant_experts=4, nodes=2, expert_groups=4)
    plan = plan_replication(tokens, rules)
    theirs = Placement(np.array(PUBLISHED["physical_to_logical_map"]), 8, 12)
    print(f"\nThe published example, 4 groups on 2 nodes: ours {plan.ratio}, bound {plan.bound}")
    print(f"  {verdict.compare(plan, theirs, tokens)}: {balance_ratio(tokens, theirs)}")


PUBLISHED: dict[str, Any] = {
    "weight": [
        [90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
        [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27],
    ],
    "physical_to_logical_map": [
        [5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1],
        [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1],
    ],
}
"""README of deepseek-ai/EPLB (MIT): the example's input and its printed output."""


def main() -> None:
    warnings.simplefilter("ignore")
    reference(np.ones((1, 4)), 2, 0)
    verdict = Verdict()
    faster = [compare_shape(shape, verdict) for shape in SHAPES]
    compare_fuzzed(verdict)
    compare_groups(verdict)
    compare_published(verdict)
    names = [f"{experts} experts on {ranks} ranks" for _, experts, ranks, _ in SHAPES]
    print_result(
        "planner",
        min(ratio for redundant, ratio in faster[0].items() if redundant >= 64),
        "× faster than vLLM's, at 64 redundant experts and more",
        at_least=FASTER,
        times_faster_by_redundancy={
            name: {redundant: round(times, 2) for redundant, times in shape.items()}
            for name, shape in zip(names, faster, strict=True)
        },
        **vars(verdict),
    )
    if verdict.worse or verdict.far_from_bound:  # no matter of time, so also with --quick
        sys.exit(1)


if __name__ == "__main__":
    main()
