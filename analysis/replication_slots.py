"""How many copies there is room for: the slots of each rank and layer, within its memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moescope.analysis.replication_rules import PlanRules
from moescope.schemas.errors import PlanError
from moescope.schemas.records import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Room:
    """Where copies can be.

    Attributes:
        capacity: int64 ``[layers, ranks]``, slots.
        copies: int64 ``[layers]``, copies to place, at most one of an expert per rank.
    """

    capacity: IntArray
    copies: IntArray


def find_room(rules: PlanRules, layers: int, experts: int) -> Room:
    """Turn rules into slots.

    Raises:
        PlanError: one copy of each expert does not fit.
    """
    if rules.slots_per_rank is not None:
        capacity = np.tile(np.minimum(rules.slots_per_rank, experts), (layers, 1)).astype(np.int64)
        copies = np.full(layers, experts * rules.ranks, dtype=np.int64)
    else:
        wanted = min(experts + rules.redundant_experts, experts * rules.ranks)
        capacity = np.full((layers, rules.ranks), -(-wanted // rules.ranks), dtype=np.int64)
        copies = np.full(layers, wanted, dtype=np.int64)
    if rules.memory_budget_bytes is not None:
        _trim(capacity, bytes_per_slot(rules, layers, experts), rules.memory_budget_bytes)
    slots = capacity.sum(axis=1)
    if (slots < experts).any():
        raise PlanError(_missing(rules, slots, experts))
    return Room(capacity, np.minimum(copies, slots))


def bytes_per_slot(rules: PlanRules, layers: int, experts: int) -> FloatArray:
    """Bytes of the largest expert of each layer: float64 ``[layers]``."""
    given = np.asarray(rules.bytes_per_expert, dtype=np.float64)
    if given.shape not in {(), (layers,), (layers, experts)} or not (given > 0).all():
        raise PlanError(
            f"bytes_per_expert has the shape {given.shape} for {layers} layers of {experts} experts; give "
            "one positive number, one per layer, or one per layer and expert."
        )
    largest = given.max(axis=1) if given.ndim == 2 else given
    return np.broadcast_to(largest, (layers,)).copy()


def _trim(capacity: IntArray, slot_bytes: FloatArray, budget: float) -> None:
    """Take slots from ranks that are over their budget, layer after layer in turn, so that all lose alike."""
    layers, ranks = capacity.shape
    layer = 0
    for rank in range(ranks):
        used = float(capacity[:, rank] @ slot_bytes)
        while used > budget and capacity[:, rank].any():
            if capacity[layer, rank]:
                capacity[layer, rank] -= 1
                used -= slot_bytes[layer]
            layer = (layer + 1) % layers


def _missing(rules: PlanRules, slots: IntArray, experts: int) -> str:
    if rules.memory_budget_bytes is None:
        return (
            f"{experts} experts do not fit {int(slots.min())} slots; every expert needs at least one slot: "
            "give the ranks more."
        )
    slot_bytes = bytes_per_slot(rules, len(slots), experts)
    needed = experts * float(slot_bytes.sum()) / rules.ranks
    whole = float(slot_bytes.max())
    needed = whole * np.ceil(needed / whole)
    missing = max(needed - rules.memory_budget_bytes, 0.0)
    return (
        f"One copy of each of {experts} experts in {len(slots)} layers takes {needed:,.0f} bytes on each of "
        f"{rules.ranks} ranks; the budget of {rules.memory_budget_bytes:,.0f} bytes is {missing:,.0f} bytes "
        "short. Raise the budget, use more ranks or smaller weights."
    )
