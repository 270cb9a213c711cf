"""Failovers of a simulated fleet: who serves in place of a copy whose rank is dead."""

from __future__ import annotations

import numpy as np

from moescope.schemas.records import IntArray
from moescope.simulator.placement import TokenSplit


def failovers_by_rank(split: TokenSplit, counts: IntArray) -> dict[int, IntArray]:
    """What each rank served in place of a dead one: int64 ``[num_moe_layers, num_experts]`` by rank.

    The first copy that is alive counts; experts without one are not chosen at all while their rank is dead.
    """
    found = split.failovers(counts)
    if found is None:
        return {}
    lost, server = found
    served = np.where(server >= 0, lost, 0)
    return {int(rank): np.where(server == rank, served, 0) for rank in np.unique(server[served > 0])}
