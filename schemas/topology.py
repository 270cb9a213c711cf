"""The shapes that everything else is checked against: the model, the rank grid, the placement.

Glossary: a *logical expert* is an expert of the model; a *physical expert* is one copy of it in a slot of a
rank; *redundant experts* are the physical experts beyond one per logical expert. K3 with 128 redundant
experts on 64 ranks has 896 + 128 = 1,024 physical experts, 16 slots a rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.schemas.errors import PlacementError, ShapeError
from moescope.schemas.records import IntArray

EMPTY_SLOT: Final = -1


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the router of a model chooses from.

    ``moe_layers`` are the model's 0-based layer indices that have routed experts, in order; ``num_layers``
    counts every decoder layer, the dense ones included.
    """

    name: str
    num_layers: int
    moe_layers: tuple[int, ...]
    num_experts: int
    top_k: int

    def __post_init__(self) -> None:
        """Refuse a shape that no model can have."""
        if self.num_experts < 1 or not 1 <= self.top_k <= self.num_experts:
            raise ShapeError(f"{self.name}: top-{self.top_k} of {self.num_experts} experts is impossible")
        layers = self.moe_layers
        if not layers:
            raise ShapeError(f"{self.name}: a model without MoE layers has no experts to watch")
        if list(layers) != sorted(set(layers)) or layers[0] < 0 or layers[-1] >= self.num_layers:
            raise ShapeError(
                f"{self.name}: MoE layers must be increasing indices below {self.num_layers}, got {layers}"
            )

    @property
    def num_moe_layers(self) -> int:
        """Layers with routed experts: the first axis of every count."""
        return len(self.moe_layers)

    @property
    def layer_index(self) -> IntArray:
        """int64 ``[num_moe_layers]``: the model's layer index of each row of counts."""
        return np.asarray(self.moe_layers, dtype=np.int64)


def every_layer_from(name: str, first: int, num_layers: int, *, num_experts: int, top_k: int) -> ModelShape:
    """Build the shape of a model whose layers are all MoE from layer ``first`` on."""
    return ModelShape(name, num_layers, tuple(range(first, num_layers)), num_experts, top_k)


# Published configurations: Kimi K3 (93 layers, the first dense), DeepSeek-V3 (61, the first three dense),
# Qwen3-235B-A22B (94), gpt-oss-120b (36), Mixtral-8x7B (32).
MODEL_SHAPES: Final[dict[str, ModelShape]] = {
    shape.name: shape
    for shape in (
        every_layer_from("kimi-k3", 1, 93, num_experts=896, top_k=16),
        every_layer_from("deepseek-v3", 3, 61, num_experts=256, top_k=8),
        every_layer_from("qwen3-moe", 0, 94, num_experts=128, top_k=8),
        every_layer_from("gpt-oss", 0, 36, num_experts=128, top_k=4),
        every_layer_from("mixtral", 0, 32, num_experts=8, top_k=2),
    )
}


@dataclass(frozen=True, slots=True)
class RankGrid:
    """Where one process stands in its expert-parallel group."""

    ep_group: str = "0"
    ep_rank: int = 0
    ep_size: int = 1

    def __post_init__(self) -> None:
        """Refuse a rank outside its group."""
        if not 0 <= self.ep_rank < self.ep_size:
            raise ShapeError(f"EP rank {self.ep_rank} is outside a group of {self.ep_size} (0-based)")


@dataclass(frozen=True, slots=True)
class Placement:
    """Which rank holds which copies, per MoE layer.

    Attributes:
        physical_to_logical_map: int64 ``[num_moe_layers, slots]``; −1 is an empty slot. Rank r owns the
            slots ``[r·k, (r+1)·k)`` with ``k = slots / ep_size``.
        ep_size: ranks of the group.
        num_experts: logical experts of the model.
    """

    physical_to_logical_map: IntArray
    ep_size: int
    num_experts: int

    def __post_init__(self) -> None:
        """Refuse a map that an engine could not serve from.

        Raises:
            PlacementError: wrong axes, a width that the ranks do not divide, an id outside the model, or a
                logical expert without a copy.
        """
        table = self.physical_to_logical_map
        if table.ndim != 2:
            raise PlacementError(f"a placement has the axes [layers, slots], got {table.ndim} axes")
        slots = table.shape[1]
        if self.ep_size < 1 or slots % self.ep_size:
            raise PlacementError(f"{slots} slots do not divide over {self.ep_size} ranks")
        if table.min(initial=EMPTY_SLOT) < EMPTY_SLOT or table.max(initial=EMPTY_SLOT) >= self.num_experts:
            raise PlacementError(f"a slot holds an id outside −1 … {self.num_experts - 1}")
        missing = np.argwhere(self.replicas_per_layer_expert() == 0)
        if len(missing):
            row, expert = missing[0]
            raise PlacementError(
                f"expert {expert} of MoE layer row {row} has no copy anywhere ({len(missing)} such); "
                "every logical expert needs at least one slot"
            )

    @property
    def slots_per_rank(self) -> int:
        """Physical experts that one rank has room for in one layer."""
        return int(self.physical_to_logical_map.shape[1]) // self.ep_size

    def replicas_per_layer_expert(self) -> IntArray:
        """Copies of each logical expert in the group: int64 ``[num_moe_layers, num_experts]``."""
        table = self.physical_to_logical_map
        layers, width = len(table), self.num_experts + 1  # column 0 counts the empty slots
        column = table - EMPTY_SLOT + np.arange(layers)[:, None] * width
        replicas: IntArray = np.bincount(column.ravel(), minlength=layers * width).reshape(layers, width)
        return replicas[:, 1:]

    def replicas_per_rank_layer_expert(self) -> IntArray:
        """Copies by rank: int64 ``[ep_size, num_moe_layers, num_experts]``, owned by the caller."""
        num_layers = len(self.physical_to_logical_map)
        by_rank = self.physical_to_logical_map.reshape(num_layers, self.ep_size, -1)
        replicas = np.zeros((self.ep_size, num_layers, self.num_experts), dtype=np.int64)
        layer, rank, slot = np.nonzero(by_rank != EMPTY_SLOT)
        np.add.at(replicas, (rank, layer, by_rank[layer, rank, slot]), 1)
        return replicas

    def same_rank_duplicates(self) -> int:
        """Copies that share a rank with another copy of their expert: they add no balance and no safety."""
        extra = self.replicas_per_rank_layer_expert() - 1
        return int(extra[extra > 0].sum())

    def replicas_on_rank(self, rank: int) -> IntArray:
        """Copies on one rank: int64 ``[num_moe_layers, num_experts]``, owned by the caller."""
        first = rank * self.slots_per_rank
        held = self.physical_to_logical_map[:, first : first + self.slots_per_rank]
        replicas = np.zeros((len(held), self.num_experts), dtype=np.int64)
        layer, slot = np.nonzero(held != EMPTY_SLOT)
        np.add.at(replicas, (layer, held[layer, slot]), 1)
        return replicas


def place_contiguously(shape: ModelShape, ep_size: int) -> Placement:
    """Place expert blocks on ranks in order, one copy each: what engines do without a placement.

    Where the ranks do not divide the experts, the first ranks hold one expert more, as vLLM's ``linear``
    strategy does.
    """
    base, extra = divmod(shape.num_experts, ep_size)
    slots = base + (1 if extra else 0)
    table = np.full((ep_size, slots), EMPTY_SLOT, dtype=np.int64)
    first = 0
    for rank in range(ep_size):
        held = base + (1 if rank < extra else 0)
        table[rank, :held] = np.arange(first, first + held)
        first += held
    per_layer = np.tile(table.reshape(1, -1), (shape.num_moe_layers, 1))
    return Placement(per_layer, ep_size, shape.num_experts)


def place_replicas(replicas_per_rank_layer_expert: IntArray) -> Placement:
    """Turn copies by rank into slots, each rank's experts in rising order, empty slots last.

    Which slot of its rank a copy has is not known from copies; engines read slots, so a plan that starts here
    names a layout and not the engine's own. Every rank gets as many slots as the fullest needs.

    Args:
        replicas_per_rank_layer_expert: any integer dtype, ``[ep_size, num_moe_layers, num_experts]``.

    Raises:
        PlacementError: a logical expert without a copy.
    """
    ranks, layers, num_experts = replicas_per_rank_layer_expert.shape
    held = replicas_per_rank_layer_expert.sum(axis=2, dtype=np.int64)
    slots = int(held.max(initial=0))
    table = np.full((layers, ranks, slots), EMPTY_SLOT, dtype=np.int64)
    by_layer = replicas_per_rank_layer_expert.transpose(1, 0, 2)
    layer, rank, expert = np.nonzero(by_layer)
    copies = by_layer[layer, rank, expert].astype(np.int64)
    layer, rank, expert = (np.repeat(axis, copies) for axis in (layer, rank, expert))
    first = np.concatenate([[0], np.cumsum(held.T.ravel())[:-1]]).reshape(layers, ranks)
    table[layer, rank, np.arange(len(layer)) - first[layer, rank]] = expert
    return Placement(table.reshape(layers, ranks * slots), ranks, num_experts)
