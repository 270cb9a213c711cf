"""The replication planner against an exact solver on small cases: how far above the best plan it stays.

A mixed-integer program (SciPy's HiGHS) chooses for each expert how many copies it has and on which ranks they
are, all slots filled; loads are split evenly. Needs SciPy, so it runs apart from `bench_planner.py`. A case
that is not solved in time is scored against the bound that the solver has proved: the planner looks worse for
it, never better.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from machine import print_result
from planner_loads import SPREADS
from scipy import optimize, sparse

from moescope.analysis.replication import PlanRules, plan_replication

IS_QUICK = "--quick" in sys.argv
CASES = ((8, 4, 4), (8, 4, 8), (12, 4, 4), (16, 4, 4), (12, 6, 6), (16, 4, 0))
"""Experts, ranks, redundant experts."""
INSTANCES = 1 if IS_QUICK else 6
SECONDS = 1.0 if IS_QUICK else 3.0


def main() -> None:
    over_proved, over_best = [], []
    for experts, ranks, redundant in CASES:
        part, solved, spent = [], [], 0.0
        for seed in range(INSTANCES):
            random = np.random.default_rng(seed)
            load = random.lognormal(0.0, SPREADS[seed % 3][1], experts) * 1000
            started = time.process_time()
            rules = PlanRules(ranks=ranks, redundant_experts=redundant)
            ratio = float(plan_replication(load[None], rules).ratio[0])
            spent += time.process_time() - started
            best, proved = least_ratio(load, ranks, redundant)
            # A floating-point solver can "prove" more than is true: our plan is its own witness.
            part.append(max(ratio / proved - 1, 0.0) * 100)
            if best <= proved * (1 + 1e-4):
                solved.append(max(ratio / best - 1, 0.0) * 100)
        over_proved += part
        over_best += solved
        line = f"  {experts:2} experts, {ranks} ranks, {redundant} redundant: "
        line += f"{len(solved)} of {INSTANCES} solved"
        if solved:
            line += f", ours {np.mean(solved):.3f} % over the best ({max(solved):.2f} % at most)"
        print(
            f"{line}; {np.mean(part):.3f} % over what is proved; {spent / INSTANCES * 1000:.0f} ms",
            flush=True,
        )
    print_result(
        "planner_exact",
        float(np.mean(over_proved)),
        "% over what the solver proved, on average",
        at_most=0.5,
        solved=len(over_best),
        over_best=round(float(np.mean(over_best)), 4) if over_best else None,
    )


def least_ratio(load: Any, ranks: int, redundant: int) -> tuple[float, float]:
    """Max / mean of the best plan that was found, and what the solver proved that none is below."""
    experts = len(load)
    slots = -(-(experts + redundant) // ranks)
    scaled = load / load.sum() * ranks
    copies = range(1, ranks + 1)
    cells = [(expert, count, rank) for expert in range(experts) for count in copies for rank in range(ranks)]
    cell = {key: index for index, key in enumerate(cells)}
    first_choice = len(cells)
    choice = {
        (expert, count): first_choice + expert * ranks + count - 1
        for expert in range(experts)
        for count in copies
    }
    top = first_choice + len(choice)
    rows: list[tuple[dict[int, float], float, float]] = []
    for expert in range(experts):
        rows.append(({choice[expert, count]: 1.0 for count in copies}, 1, 1))
        for count in copies:
            row = {cell[expert, count, rank]: 1.0 for rank in range(ranks)}
            rows.append(({**row, choice[expert, count]: -float(count)}, 0, 0))
            rows += [
                ({cell[expert, count, rank]: 1.0, choice[expert, count]: -1.0}, -1, 0)
                for rank in range(ranks)
            ]
    total = experts + redundant
    rows.append(({index: float(count) for (_, count), index in choice.items()}, total, total))
    # Ranks are alike: most copies of the heaviest expert on the first ones.
    heaviest = int(scaled.argmax())
    for rank in range(ranks - 1):
        first = {cell[heaviest, count, rank]: -1.0 for count in copies}
        rows.append(({**first, **{cell[heaviest, count, rank + 1]: 1.0 for count in copies}}, -np.inf, 0))
    for rank in range(ranks):
        held = [
            (cell[expert, count, rank], scaled[expert] / count) for expert, count, at in cells if at == rank
        ]
        rows.append(({index: 1.0 for index, _ in held}, 0, slots))
        rows.append(({**{index: float(size) for index, size in held}, top: -1.0}, -np.inf, 0))
    return _solve(rows, top)


def _solve(rows: list[tuple[dict[int, float], float, float]], top: int) -> tuple[float, float]:
    table = sparse.lil_array((len(rows), top + 1))
    for index, (row, _, _) in enumerate(rows):
        for column, value in row.items():
            table[index, column] = value
    goal = np.zeros(top + 1)
    goal[top] = 1.0
    integral = np.ones(top + 1)
    integral[top] = 0
    found = optimize.milp(
        goal,
        constraints=optimize.LinearConstraint(
            table.tocsr(), [low for _, low, _ in rows], [high for _, _, high in rows]
        ),
        integrality=integral,
        bounds=optimize.Bounds(np.zeros(top + 1), np.append(np.ones(top), np.inf)),
        options={"time_limit": SECONDS, "mip_rel_gap": 1e-5},
    )
    best = float(found.fun) if found.fun is not None else np.inf
    return best, float(found.mip_dual_bound)


if __name__ == "__main__":
    main()
