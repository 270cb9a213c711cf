"""The rules that a plan of replicas has to keep, refused where no plan can."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np

from moescope.schemas.errors import PlanError
from moescope.schemas.records import FloatArray
from moescope.schemas.settings import Settings

SMALLEST_LOAD: Final = 1e-300
LARGEST_LOAD: Final = 1e250
"""Between these, loads add up and divide without loss; nobody counts beyond."""


class CoverNodes(StrEnum):
    """Which experts get a second copy on another node, as far as the spare slots go."""

    NONE = "none"
    HOT = "hot"
    ALL = "all"


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanRules:
    """What a plan may use and has to keep.

    Two copies of an expert never share a rank: they would add neither balance nor safety.

    Attributes:
        ranks: ranks of the EP group.
        redundant_experts: spare slots of each layer beyond one per expert; any number from 0 up. What would
            need more copies of an expert than there are ranks stays empty, and so does what would make a
            layer far less even.
        uses_every_copy: no copy stays unused, even where it makes a layer less even: engines fill all slots.
        slots_per_rank: slots of each rank in each layer where they differ; takes the place of
            ``redundant_experts``.
        nodes: nodes that the ranks live on, in consecutive blocks of equal size.
        expert_groups: consecutive blocks of experts that stay together on one node, for models that limit a
            token to a few groups; 1 is off.
        cover_nodes: who gets a second copy on another node with what balance leaves over.
        bytes_per_expert: bytes of one copy: one number, float64 ``[layers]`` or ``[layers, experts]``.
        memory_budget_bytes: what the copies on one rank may take over all layers; fewer spare slots are used
            where it ends. Within a layer every slot is counted at the largest of its experts.
        expert_cost: cost of one token, float64 ``[experts]`` or ``[layers, experts]``, where experts differ;
            what is balanced is tokens × cost.
        hot_expert_ratio: above this multiple of its layer's median an expert is hot.
        time_budget_seconds: wall time after which the search for better counts stops.
    """

    ranks: int
    redundant_experts: int = 0
    uses_every_copy: bool = False
    slots_per_rank: tuple[int, ...] | None = None
    nodes: int = 1
    expert_groups: int = 1
    cover_nodes: CoverNodes = CoverNodes.NONE
    bytes_per_expert: FloatArray | float | None = None
    memory_budget_bytes: float | None = None
    expert_cost: FloatArray | None = None
    hot_expert_ratio: float = field(default_factory=lambda: Settings().hot_expert_ratio)
    time_budget_seconds: float = 20.0

    def __post_init__(self) -> None:
        """Refuse rules that contradict themselves, whatever the model.

        Raises:
            PlanError: naming the rule.
        """
        if self.ranks < 1 or self.redundant_experts < 0:
            raise PlanError(
                f"A plan needs at least one rank and no negative number of redundant experts; got "
                f"{self.ranks} ranks and {self.redundant_experts} redundant experts."
            )
        if self.slots_per_rank is not None and (
            len(self.slots_per_rank) != self.ranks or min(self.slots_per_rank) < 0
        ):
            raise PlanError(
                f"slots_per_rank names {len(self.slots_per_rank)} ranks, the group has {self.ranks}; "
                "give one number of slots, from 0 up, for each rank."
            )
        self._check_nodes()
        if self.memory_budget_bytes is not None and self.bytes_per_expert is None:
            raise PlanError("A memory budget needs bytes_per_expert: how large one copy of an expert is.")

    def _check_nodes(self) -> None:
        if self.nodes < 1 or self.ranks % self.nodes:
            raise PlanError(
                f"{self.ranks} ranks do not divide over {self.nodes} nodes; name a number of nodes that "
                "divides the ranks."
            )
        if self.expert_groups < 1 or (self.expert_groups > 1 and self.expert_groups % self.nodes):
            raise PlanError(
                f"{self.expert_groups} expert groups do not divide over {self.nodes} nodes; use 1 to place "
                "experts without regard to groups."
            )
        if self.is_hierarchical and self.cover_nodes is not CoverNodes.NONE:
            raise PlanError(
                f"Expert groups stay on one node, so cover_nodes={self.cover_nodes} cannot be kept; choose "
                "one of the two."
            )
        if self.cover_nodes is not CoverNodes.NONE and self.nodes < 2:
            raise PlanError(
                f"cover_nodes={self.cover_nodes} needs at least 2 nodes; name how many there are."
            )

    @property
    def is_hierarchical(self) -> bool:
        """Whether expert groups bind experts to nodes."""
        return self.expert_groups > 1 and self.nodes > 1

    @property
    def ranks_per_node(self) -> int:
        """Ranks that one node has."""
        return self.ranks // self.nodes

    def load_of(self, tokens_per_layer_expert: object) -> FloatArray:
        """Weigh tokens by the cost of their expert: float64 ``[layers, experts]``, owned by the caller.

        Raises:
            PlanError: tokens that are no table of finite, non-negative numbers, or costs that do not fit it.
        """
        tokens = np.array(tokens_per_layer_expert, dtype=np.float64)
        if tokens.ndim != 2 or not tokens.size:
            raise PlanError(f"Tokens have the axes [layers, experts]; got the shape {tokens.shape}.")
        if self.expert_cost is not None:
            cost = np.asarray(self.expert_cost, dtype=np.float64)
            if cost.shape not in {tokens.shape, tokens.shape[1:]} or not (cost > 0).all():
                raise PlanError(
                    f"expert_cost has the shape {cost.shape} for tokens of {tokens.shape}; give a positive "
                    "cost for each expert, or for each layer and expert."
                )
            tokens *= cost
        if not np.isfinite(tokens).all() or (tokens < 0).any():
            raise PlanError("Tokens must be finite and not negative.")
        if tokens.max() > LARGEST_LOAD or (tokens[tokens > 0] < SMALLEST_LOAD).any():
            raise PlanError(
                f"Tokens other than 0 must lie between {SMALLEST_LOAD} and {LARGEST_LOAD}; give them in "
                "another unit."
            )
        if tokens.shape[1] % self.expert_groups:
            raise PlanError(
                f"{tokens.shape[1]} experts do not divide into {self.expert_groups} groups; use 1 to place "
                "experts without regard to groups."
            )
        return tokens
