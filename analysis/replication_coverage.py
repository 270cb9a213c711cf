"""What would still be served after a rank or a node fails: experts with copies in more than one place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import Placement


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


def find_hot(load_per_layer_expert: FloatArray, ratio: float) -> np.ndarray:
    """Mark experts above ``ratio`` × their layer's median load: bool ``[layers, experts]``."""
    median = np.median(load_per_layer_expert, axis=1, keepdims=True)
    hot: np.ndarray = load_per_layer_expert > np.maximum(ratio * median, 0)
    return hot


def places_of(placement: Placement, nodes: int) -> tuple[IntArray, IntArray]:
    """Count ranks and nodes with a copy of each expert: int64 ``[layers, experts]`` each."""
    held = placement.replicas_per_rank_layer_expert() > 0
    by_node = held.reshape(nodes, -1, *held.shape[1:]).any(axis=1)
    return held.sum(axis=0, dtype=np.int64), by_node.sum(axis=0, dtype=np.int64)


def measure_coverage(
    load_per_layer_expert: FloatArray, placement: Placement, *, nodes: int, hot_ratio: float
) -> NodeCoverage:
    """Measure how much of the load survives the failure of any one rank, and of any one node."""
    hot = find_hot(load_per_layer_expert, hot_ratio)
    on_ranks, on_nodes = places_of(placement, nodes)
    total = float(load_per_layer_expert.sum())

    def share_of_hot(places: IntArray) -> float:
        return float((places[hot] > 1).mean()) if hot.any() else 1.0

    def share_of_traffic(places: IntArray) -> float:
        return float(load_per_layer_expert[places > 1].sum()) / total if total else 0.0

    return NodeCoverage(
        hot_experts=int(hot.sum()),
        hot_on_two_ranks=share_of_hot(on_ranks),
        hot_on_two_nodes=share_of_hot(on_nodes),
        traffic_on_two_ranks=share_of_traffic(on_ranks),
        traffic_on_two_nodes=share_of_traffic(on_nodes),
    )
