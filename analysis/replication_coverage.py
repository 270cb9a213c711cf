"""What would still be served after a rank or a node fails: experts with copies in more than one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from moescope.schemas.records import FloatArray
from moescope.schemas.topology import EMPTY_SLOT, Placement

BoolArray: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCoverage:
    """Shares, 0 … 1, over all layers of a placement.

    Attributes:
        hot_experts: experts above the hot multiple of their layer's median, counted in every layer.
        hot_on_two_ranks: share of them with copies on at least two ranks; 1 where there are none.
        hot_on_two_nodes: share of them with copies on at least two nodes; 1 where there are none.
        traffic_on_two_ranks: share of the load that goes to experts with copies on at least two ranks.
        traffic_on_two_nodes: share of the load that goes to experts with copies on at least two nodes.
    """

    hot_experts: int
    hot_on_two_ranks: float
    hot_on_two_nodes: float
    traffic_on_two_ranks: float
    traffic_on_two_nodes: float


def find_hot(load_per_layer_expert: FloatArray, ratio: float) -> BoolArray:
    """Mark experts above ``ratio`` × their layer's median load: bool ``[layers, experts]``."""
    median = np.median(load_per_layer_expert, axis=1, keepdims=True)
    hot: BoolArray = load_per_layer_expert > ratio * median
    return hot


def in_two_places(placement: Placement, places: int) -> BoolArray:
    """Mark experts with copies in at least two places: bool ``[layers, experts]``.

    Args:
        placement: of copies on ranks.
        places: consecutive blocks of ranks that fail together: as many as ranks, or as nodes.
    """
    table = placement.physical_to_logical_map
    layers, slots = table.shape
    width = placement.num_experts + 1  # column 0 is where the empty slots go
    key = (table - EMPTY_SLOT + np.arange(layers)[:, None] * width).ravel()
    place = np.tile(np.arange(slots, dtype=np.int32) // (slots // places), layers)
    # Slots are in the order of the places: an expert's first and last copy tell whether there are two.
    last = np.zeros(layers * width, dtype=np.int32)
    first = np.zeros_like(last)
    last[key] = place
    first[key[::-1]] = place[::-1]
    marked: BoolArray = (first != last).reshape(layers, width)[:, 1:]
    return marked


def measure_coverage(
    load_per_layer_expert: FloatArray, placement: Placement, *, nodes: int, hot_ratio: float
) -> NodeCoverage:
    """Measure how much of the load survives the failure of any one rank, and of any one node."""
    hot = find_hot(load_per_layer_expert, hot_ratio)
    on_ranks, on_nodes = in_two_places(placement, placement.ep_size), in_two_places(placement, nodes)
    total = float(load_per_layer_expert.sum())

    def share_of_hot(covered: BoolArray) -> float:
        return float(covered[hot].mean()) if hot.any() else 1.0

    def share_of_traffic(covered: BoolArray) -> float:
        return float(load_per_layer_expert[covered].sum()) / total if total else 0.0

    return NodeCoverage(
        hot_experts=int(hot.sum()),
        hot_on_two_ranks=share_of_hot(on_ranks),
        hot_on_two_nodes=share_of_hot(on_nodes),
        traffic_on_two_ranks=share_of_traffic(on_ranks),
        traffic_on_two_nodes=share_of_traffic(on_nodes),
    )
