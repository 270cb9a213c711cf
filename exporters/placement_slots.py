"""What every engine asks of a placement, and how its empty slots are filled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from moescope.schemas.errors import PlacementError
from moescope.schemas.records import IntArray
from moescope.schemas.topology import EMPTY_SLOT, Placement


def check_for_engine(placement: Placement, layers: Sequence[int]) -> None:
    """Refuse a placement that an engine would load and then serve wrongly or badly.

    :class:`~moescope.schemas.topology.Placement` itself vouches for the coverage of every layer, the ids, and
    that the ranks divide the slots.

    Raises:
        PlacementError: rows that are not one for each layer, empty slots, or two copies on one rank.
    """
    table = placement.physical_to_logical_map
    rising = sorted({int(layer) for layer in layers})
    if len(table) != len(layers) or rising != [int(layer) for layer in layers] or (rising and rising[0] < 0):
        raise PlacementError(
            f"the placement has {len(table)} rows, and {len(layers)} layers were named; rows must be the "
            "model's MoE layers in rising order, each once"
        )
    empty = int((table == EMPTY_SLOT).sum())
    if empty:
        row = int(np.argwhere(table == EMPTY_SLOT)[0, 0])
        raise PlacementError(
            f"{empty} slots are empty (layer {layers[row]} first), and engines need every slot filled; fill "
            "them with copies, or plan with as many redundant experts as make whole slots on every rank"
        )
    duplicates = placement.same_rank_duplicates()
    if duplicates:
        raise PlacementError(
            f"{duplicates} copies share a rank with another copy of their expert, where they add neither "
            "balance nor safety; plan again, each rank holds an expert once"
        )


def count_redundant(placement: Placement) -> int:
    """Slots of a layer beyond one for each expert: what engines call redundant experts."""
    return int(placement.physical_to_logical_map.shape[1]) - placement.num_experts


def fill_empty_slots(placement: Placement, tokens_per_layer_expert: npt.NDArray[np.number]) -> Placement:
    """Fill every empty slot with a copy of the coldest expert that its rank does not hold.

    Args:
        placement: with or without empty slots.
        tokens_per_layer_expert: load ``[layers, experts]``; what is coldest is what one more copy of it
            would carry.

    Raises:
        PlacementError: a rank has more slots than the model has experts.
    """
    table = placement.physical_to_logical_map
    if placement.slots_per_rank > placement.num_experts:
        raise PlacementError(
            f"a rank has {placement.slots_per_rank} slots and the model {placement.num_experts} experts; "
            "some must stay empty, and engines need them filled: plan fewer redundant experts"
        )
    if not (table == EMPTY_SLOT).any():
        return placement
    filled = table.copy()
    copies = placement.replicas_per_layer_expert()
    for row in np.flatnonzero((table == EMPTY_SLOT).any(axis=1)):
        _fill_layer(filled[row], copies[row], tokens_per_layer_expert[row], placement.slots_per_rank)
    return Placement(filled, placement.ep_size, placement.num_experts)


def _fill_layer(
    slots: IntArray, copies: IntArray, tokens: npt.NDArray[np.number], slots_per_rank: int
) -> None:
    for slot in np.flatnonzero(slots == EMPTY_SLOT):
        first = slot // slots_per_rank * slots_per_rank
        held = slots[first : first + slots_per_rank]
        order = np.lexsort((copies, tokens / (copies + 1)))
        coldest = order[~np.isin(order, held)][0]
        slots[slot] = coldest
        copies[coldest] += 1
