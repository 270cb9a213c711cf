"""A planner that is easy to trust: the published greedy rules, one copy at a time, in plain Python."""

from __future__ import annotations

import numpy as np

from moescope.schemas.topology import Placement


def plan_plainly(tokens: list[float], ranks: int, redundant_experts: int) -> Placement:
    """Next copy to the largest load per copy, heaviest copy to the lightest rank with a free slot."""
    experts = len(tokens)
    copies = [1] * experts
    for _ in range(redundant_experts):
        sizes = [load / count for load, count in zip(tokens, copies, strict=True)]
        copies[sizes.index(max(sizes))] += 1
    pieces = [
        (load / count, expert)
        for expert, (load, count) in enumerate(zip(tokens, copies, strict=True))
        for _ in range(count)
    ]
    pieces.sort(key=lambda piece: -piece[0])
    slots = (experts + redundant_experts) // ranks
    held: list[list[int]] = [[] for _ in range(ranks)]
    load = [0.0] * ranks
    for size, expert in pieces:
        rank = min((rank for rank in range(ranks) if len(held[rank]) < slots), key=lambda rank: load[rank])
        held[rank].append(expert)
        load[rank] += size
    return Placement(np.array([[expert for rank in held for expert in rank]]), ranks, experts)
