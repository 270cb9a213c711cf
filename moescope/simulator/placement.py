"""Where the copies of a simulated fleet's experts are, and how tokens are split over them."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from moescope.schemas.errors import UsageError
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import EMPTY_SLOT, ModelShape, Placement, place_contiguously

BoolArray = npt.NDArray[np.bool_]
_NONE: Final = EMPTY_SLOT


def place_with_redundancy(
    shape: ModelShape, ranks: int, redundant_experts: int, popularity: FloatArray
) -> Placement:
    """Contiguous blocks, and second copies of the most popular experts of each layer on other ranks.

    Args:
        shape: the model.
        ranks: EP ranks.
        redundant_experts: copies beyond one per expert, in each layer; each rank takes equally many.
        popularity: float64 ``[num_moe_layers, num_experts]``.

    Raises:
        UsageError: the redundant experts do not divide over the ranks, or are more than the experts.
    """
    base = place_contiguously(shape, ranks)
    if not redundant_experts:
        return base
    if redundant_experts % ranks or redundant_experts > shape.num_experts or ranks < 2:
        raise UsageError(
            f"--redundant-experts {redundant_experts}: use a multiple of the {ranks} ranks (two at least) "
            f"up to the {shape.num_experts} experts"
        )
    home = base.physical_to_logical_map.reshape(shape.num_moe_layers, ranks, -1)
    extra = redundant_experts // ranks
    copies = np.empty((shape.num_moe_layers, ranks, extra), dtype=np.int64)
    rank_of = _rank_of_expert(home[0], shape.num_experts)
    for layer, weights in enumerate(popularity):
        chosen = np.argsort(-weights, kind="stable")[:redundant_experts]
        copies[layer] = _deal(chosen, rank_of, ranks, first=layer).reshape(extra, ranks).T
    return Placement(
        np.concatenate([home, copies], axis=2).reshape(shape.num_moe_layers, -1), ranks, shape.num_experts
    )


def _rank_of_expert(home: IntArray, num_experts: int) -> IntArray:
    rank_of = np.empty(num_experts, dtype=np.int64)
    for rank, experts in enumerate(home):
        rank_of[experts[experts != _NONE]] = rank
    return rank_of


def _deal(experts: IntArray, rank_of: IntArray, ranks: int, *, first: int) -> IntArray:
    """Order experts so that place i, which is on rank ``i % ranks``, is never the expert's own rank."""
    dealt = np.roll(experts, first)
    for place in range(len(dealt)):
        if rank_of[dealt[place]] == place % ranks:
            for other in (np.arange(1, len(dealt)) + place) % len(dealt):
                fits_here = rank_of[dealt[other]] != place % ranks
                if fits_here and rank_of[dealt[place]] != other % ranks:
                    dealt[place], dealt[other] = dealt[other], dealt[place]
                    break
    return dealt


class TokenSplit:
    """Splits the assignments of experts over the copies that are alive: evenly, the first ones get the rest.

    Args:
        placement: all copies.
        is_alive: bool ``[ep_size]``: ranks that answer.
    """

    def __init__(self, placement: Placement, is_alive: BoolArray) -> None:
        table = placement.physical_to_logical_map
        self.ranks = placement.ep_size
        self.num_experts = placement.num_experts
        self._slots = placement.slots_per_rank
        held = table != _NONE
        slot_is_alive = held & np.repeat(is_alive, self._slots)
        self._expert_of_slot = np.where(held, table, 0)
        self._layer = np.arange(len(table))[:, None]
        self._ordinal, self._copies = self._number(slot_is_alive)
        self._planned_ordinal, self._planned_copies = self._number(held)
        self._is_alive = slot_is_alive
        self._is_lost = held & ~slot_is_alive
        self.replicas: IntArray = placement.replicas_per_layer_expert()
        self.is_available: BoolArray = self._count(slot_is_alive) > 0
        self._is_single = bool((self._copies[slot_is_alive] == 1).all())
        self._server_of_lost = self._servers() if self._is_lost.any() else None

    def _count(self, slots: BoolArray) -> IntArray:
        counts = np.zeros((len(slots), self.num_experts), dtype=np.int64)
        layer, slot = np.nonzero(slots)
        np.add.at(counts, (layer, self._expert_of_slot[layer, slot]), 1)
        return counts

    def _number(self, slots: BoolArray) -> tuple[IntArray, IntArray]:
        """Of each slot: which copy of its expert it is, and how many there are; int64 ``[layers, slots]``."""
        ordinal = np.zeros(slots.shape, dtype=np.int64)
        seen = np.zeros((len(slots), self.num_experts), dtype=np.int64)
        rows = np.arange(len(slots))
        for slot in range(slots.shape[1]):
            expert = self._expert_of_slot[:, slot]
            ordinal[:, slot] = seen[rows, expert]
            seen[rows, expert] += slots[:, slot]
        return ordinal, np.maximum(seen[self._layer, self._expert_of_slot], 1)

    def _servers(self) -> IntArray:
        """Rank of the first copy that is alive: int64 ``[layers, experts]``, −1 where there is none."""
        server = np.full((len(self._is_alive), self.num_experts), _NONE, dtype=np.int64)
        layer, slot = np.nonzero(self._is_alive[:, ::-1])
        slot = self._is_alive.shape[1] - 1 - slot
        order = np.argsort(-slot, kind="stable")  # the first slot is written last and stays
        server[layer[order], self._expert_of_slot[layer[order], slot[order]]] = slot[order] // self._slots
        return server

    def per_rank(self, counts: IntArray) -> IntArray:
        """Assignments that each rank computes: int64 ``[layers, ep_size]`` of ``[layers, experts]``."""
        shares = counts[self._layer, self._expert_of_slot]
        if not self._is_single:
            shares = shares // self._copies + (self._ordinal < shares % self._copies)
        shares = shares * self._is_alive
        loads: IntArray = shares.reshape(len(shares), self.ranks, -1).sum(axis=2)
        return loads

    def per_rank_share(self, chances: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Of one token: assignments that it brings to each rank, and the chance that it brings any.

        Both float64 ``[layers, ep_size]``, of the chances ``[layers, experts]`` to choose each expert.
        """
        share = chances[self._layer, self._expert_of_slot] * self._is_alive / self._copies
        by_rank = share.reshape(len(share), self.ranks, -1)
        none = np.log1p(-np.minimum(by_rank, 1 - 1e-9)).sum(axis=2)
        return by_rank.sum(axis=2), -np.expm1(none)

    def failovers(self, counts: IntArray) -> tuple[IntArray, IntArray] | None:
        """What copies on dead ranks would have computed and others did.

        Returns:
            int64 ``[layers, experts]``: assignments, and the rank that served them (−1: none lost); None
            where no copy is lost.
        """
        if self._server_of_lost is None:
            return None
        shares = counts[self._layer, self._expert_of_slot]
        planned = shares // self._planned_copies + (self._planned_ordinal < shares % self._planned_copies)
        lost = np.zeros_like(counts)
        layer, slot = np.nonzero(self._is_lost)
        np.add.at(lost, (layer, self._expert_of_slot[layer, slot]), planned[layer, slot])
        return lost, self._server_of_lost
