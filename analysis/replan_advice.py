"""What to do with a placement when no move helps: leave it, or add copies."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import numpy as np

from moescope.analysis.replan_layers import BoolArray
from moescope.schemas.records import FloatArray
from moescope.schemas.topology import Placement

AT_BOUND: Final = 1e-3
"""So close to a bound, as a part of the ratio, nothing is left to gain."""


class Advice(StrEnum):
    """What to do with a placement."""

    MOVE = "move"
    LEAVE_IT = "leave it"
    ONLY_REPLICAS = "only replicas can help"


def hottest_expert_bound(tokens: Any, placement: Placement) -> FloatArray:
    """Bound max / mean from below by the hottest expert, where no slot can be spared for a second copy.

    With one copy of each expert and no empty slot, the rank of the hottest expert also holds S − 1 others,
    at least the S − 1 coldest.

    Args:
        tokens: any numeric dtype, ``[layers, experts]``.
        placement: tells the ranks and their slots.

    Returns:
        float64 ``[layers]``; 1 where copies can be added, or without tokens.
    """
    load = np.sort(np.asarray(tokens, dtype=np.float64), axis=1)
    mean = load.sum(axis=1) / placement.ep_size
    bound = np.ones(len(load))
    if placement.physical_to_logical_map.shape[1] == placement.num_experts:
        alone = load[:, -1] + load[:, : placement.slots_per_rank - 1].sum(axis=1)
        np.divide(alone, mean, out=bound, where=mean > 0)
    return np.maximum(bound, 1.0)


def find_only_replicas_help(tokens: Any, placement: Placement, ratio: FloatArray) -> BoolArray:
    """Tell where a layer stands at the bound that its hottest expert sets: bool ``[layers]``."""
    bound = hottest_expert_bound(tokens, placement)
    at_bound: BoolArray = (bound > 1 + AT_BOUND) & (ratio <= bound * (1 + AT_BOUND))
    return at_bound
