"""Placements that tests start from."""

import numpy as np

from moescope.schemas.topology import Placement


def placement_of(table, *, ranks, experts):
    """Write a placement down: one row of slots per layer."""
    return Placement(np.array(table, dtype=np.int64), ranks, experts)


def pack_greedily(tokens, *, ranks, redundant):
    """Plan from scratch as engines do: copies for the largest load per copy, then heaviest first."""
    num_experts = tokens.shape[1]
    width = (num_experts + redundant) // ranks
    table = np.full((len(tokens), ranks, width), -1)
    for layer, load in enumerate(tokens):
        copies = np.ones(num_experts, dtype=int)
        for _ in range(redundant):
            copies[np.argmax(load / copies)] += 1
        items = np.repeat(np.arange(num_experts), copies)
        totals, filled = np.zeros(ranks), np.zeros(ranks, dtype=int)
        for expert in items[np.argsort(-(load / copies)[items], kind="stable")]:
            rank = int(np.argmin(totals))
            table[layer, rank, filled[rank]] = expert
            totals[rank] += load[expert] / copies[expert]
            filled[rank] += 1
            if filled[rank] == width:
                totals[rank] = np.inf
    return Placement(table.reshape(len(tokens), -1), ranks, num_experts)
