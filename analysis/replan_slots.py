"""What a change of placement moves, and the slots in which the least moves."""

from __future__ import annotations

import numpy as np

from moescope.analysis.replan_layers import BoolArray
from moescope.schemas.errors import PlacementError
from moescope.schemas.records import IntArray
from moescope.schemas.topology import EMPTY_SLOT, Placement


def count_moves(current: Placement, planned: Placement) -> IntArray:
    """Count the copies that each rank must receive: int64 ``[ranks]``, summed over layers.

    What a rank holds already is not moved, whatever its slot; what it drops costs nothing.

    Raises:
        PlacementError: placements of different models or groups.
    """
    counts: IntArray = find_moves(current, planned).sum(axis=(0, 2))
    return counts


def find_moves(current: Placement, planned: Placement) -> BoolArray:
    """Tell which experts each rank must receive: bool ``[layers, ranks, experts]``.

    Raises:
        PlacementError: placements of different models or groups.
    """
    _check_pair(current, planned)
    moves: BoolArray = _holdings(planned) & ~_holdings(current)
    return moves


def who_holds(slots: IntArray, num_experts: int) -> BoolArray:
    """Tell which rank holds which expert: bool ``[layers, ranks, experts]``.

    Args:
        slots: int64 ``[layers, ranks, slots per rank]``.
        num_experts: logical experts of the model.
    """
    holds = np.zeros((*slots.shape[:2], num_experts), dtype=np.bool_)
    layer, rank, slot = np.nonzero(slots != EMPTY_SLOT)
    holds[layer, rank, slots[layer, rank, slot]] = True
    return holds


def _holdings(placement: Placement) -> BoolArray:
    return who_holds(slots_by_rank(placement), placement.num_experts)


def slots_by_rank(placement: Placement) -> IntArray:
    """Return the map with an axis for ranks: int64 ``[layers, ranks, slots per rank]``."""
    table = placement.physical_to_logical_map
    return table.reshape(len(table), placement.ep_size, placement.slots_per_rank)


def align_slots(
    current: Placement, planned: Placement, *, relabel_ranks: bool = False, nodes: int = 1
) -> Placement:
    """Lay out a plan so that what stays on its rank stays in its slot.

    Args:
        current: what the engine serves from.
        planned: the plan; every rank keeps its experts, unless ranks may be relabelled.
        relabel_ranks: also exchange whole ranks of a layer where the exchange moves fewer copies. The ratio
            of each layer stays; only ranks of one node with equally many experts change places.
        nodes: consecutive blocks of ranks.

    Raises:
        PlacementError: placements of different models or groups, or nodes that do not divide the ranks.
    """
    _check_pair(current, planned)
    if nodes < 1 or planned.ep_size % nodes:
        raise PlacementError(f"{planned.ep_size} ranks do not divide over {nodes} nodes")
    slots = slots_by_rank(planned)
    if relabel_ranks:
        slots = np.take_along_axis(slots, _fewest_moves(current, planned, nodes)[:, :, None], axis=1)
    held, wanted = slots_by_rank(current), slots
    aligned = _align(held.reshape(-1, held.shape[2]), wanted.reshape(-1, wanted.shape[2]))
    return Placement(aligned.reshape(len(slots), -1), planned.ep_size, planned.num_experts)


def _align(held: IntArray, wanted: IntArray) -> IntArray:
    """Reorder each row of ``wanted`` so that what ``held`` has too keeps its position."""
    rows, width = np.arange(len(wanted)), wanted.shape[1]
    is_left = wanted != EMPTY_SLOT
    aligned = np.full_like(wanted, EMPTY_SLOT)
    for slot in range(min(held.shape[1], width)):
        same = is_left & (wanted == held[:, slot, None])
        stays = same.any(axis=1)
        source = same.argmax(axis=1)
        aligned[rows[stays], slot] = held[stays, slot]
        is_left[rows[stays], source[stays]] = False
    # What is left goes to the slots that are left, both in order.
    source = np.argsort(~is_left, axis=1, kind="stable")
    target = np.argsort(aligned != EMPTY_SLOT, axis=1, kind="stable")
    comes = np.arange(width) < is_left.sum(axis=1)[:, None]
    row = np.nonzero(comes)[0]
    aligned[row, target[comes]] = wanted[row, source[comes]]
    return aligned


def _fewest_moves(current: Placement, planned: Placement, nodes: int) -> IntArray:
    """Choose which planned rank each rank becomes: int64 ``[layers, ranks]``.

    Greedy over the experts in common, largest first, so not always the fewest; where it moves more than
    ranks that keep their names, they keep them.
    """
    ranks = planned.ep_size
    common = np.einsum(
        "lge,lhe->lgh", _holdings(current).astype(np.float32), _holdings(planned).astype(np.float32)
    )
    filled = (slots_by_rank(planned) != EMPTY_SLOT).sum(axis=2)
    node = np.arange(ranks) // (ranks // nodes)
    allowed = (filled[:, :, None] == filled[:, None, :]) & (node[:, None] == node[None, :])
    score = np.where(allowed, common, -1)
    layer = np.arange(len(score))
    order = np.tile(np.arange(ranks), (len(score), 1))
    for _ in range(ranks):
        best = score.reshape(len(score), -1).argmax(axis=1)
        rank, source = best // ranks, best % ranks
        order[layer, rank] = source
        score[layer, rank, :] = -2
        score[layer, :, source] = -2
    kept = np.take_along_axis(common, order[:, :, None], axis=2)[:, :, 0].sum(axis=1)
    worse = kept < np.trace(common, axis1=1, axis2=2)
    order[worse] = np.arange(ranks)
    return order


def _check_pair(current: Placement, planned: Placement) -> None:
    before, after = current.physical_to_logical_map, planned.physical_to_logical_map
    if (len(before), current.ep_size, current.num_experts) != (
        len(after),
        planned.ep_size,
        planned.num_experts,
    ):
        raise PlacementError(
            f"the current placement has {len(before)} layers, {current.ep_size} ranks and "
            f"{current.num_experts} experts, the plan {len(after)}, {planned.ep_size} and "
            f"{planned.num_experts}; compare placements of one model and one group"
        )
