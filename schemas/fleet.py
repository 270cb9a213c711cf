"""What the analysis says of a fleet at one moment, frozen: a page shows it, a server does not compute it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from moescope.schemas.attributes import Phase
from moescope.schemas.records import FloatArray, IntArray


class FindingKind(StrEnum):
    """What can be wrong, and what is counted of it. A silent process is one that holds no experts."""

    SILENT_RANK = "silent_rank"
    SILENT_PROCESS = "silent_process"
    RANK_WITHOUT_COUNTS = "rank_without_counts"
    RANK_NOT_CONSERVED = "rank_not_conserved"
    PLACEMENT_UNKNOWN = "placement_unknown"
    EXPERT_UNPLACED = "expert_unplaced"
    LAYER_IMBALANCED = "layer_imbalanced"
    EXPERT_HARMFUL = "expert_harmful"


@dataclass(frozen=True, slots=True)
class LayerBalance:
    """The balance of one EP group in one phase.

    Attributes:
        layers: int64 ``[layers]``, the model's layer indices.
        ratio: float64 ``[layers]``, max / mean rank load; NaN without tokens.
        net_ratio: float64 ``[layers]``, net of the noise floor; NaN where there is no verdict.
        ranks: int64 ``[ranks]``, EP ranks that hold experts.
        load_share: float64 ``[ranks]``, part of the group's work, all layers together; NaN without any.
    """

    service: str
    ep_group: str
    phase: Phase
    layers: IntArray
    ratio: FloatArray
    net_ratio: FloatArray
    ranks: IntArray
    load_share: FloatArray


@dataclass(frozen=True, slots=True)
class ListedExpert:
    """One hot expert of the fleet's list."""

    service: str
    ep_group: str
    phase: Phase
    layer: int
    expert: int
    times_median: float
    is_harmful: bool


@dataclass(frozen=True, slots=True)
class FindingCount:
    """How many ranks, layers or experts something is wrong with; 0 says that it was looked for."""

    service: str
    ep_group: str
    kind: FindingKind
    count: int


@dataclass(frozen=True, slots=True)
class FleetJudgement:
    """Everything that the analysis says now.

    Attributes:
        hot_experts: the most harmful of all deployments first.
        left_out: EP groups and phases beyond what one judgement takes on.
    """

    balances: tuple[LayerBalance, ...] = ()
    hot_experts: tuple[ListedExpert, ...] = ()
    findings: tuple[FindingCount, ...] = ()
    left_out: int = 0
