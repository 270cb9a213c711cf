"""What the analysis says of a fleet at one moment, frozen: a page shows it, a server does not compute it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from moescope.schemas.attributes import MemoryPool, Phase
from moescope.schemas.records import FloatArray, IntArray


class FindingKind(StrEnum):
    """What can be wrong, and what is counted of it.

    A silent process is one that holds no experts. ``failover_uncovered`` counts the ranks of which each alone
    would take more of the traffic with it than a rank may.
    """

    SILENT_RANK = "silent_rank"
    SILENT_PROCESS = "silent_process"
    RANK_WITHOUT_COUNTS = "rank_without_counts"
    RANK_NOT_CONSERVED = "rank_not_conserved"
    PLACEMENT_UNKNOWN = "placement_unknown"
    EXPERT_UNPLACED = "expert_unplaced"
    LAYER_IMBALANCED = "layer_imbalanced"
    EXPERT_HARMFUL = "expert_harmful"
    STRAGGLER = "straggler"
    POOL_FULL = "pool_full"
    POOL_FILLING = "pool_filling"
    FAILOVER_UNCOVERED = "failover_uncovered"


class LookKind(StrEnum):
    """A closer look at an EP group: too dear to be taken with every judgement."""

    STRAGGLERS = "stragglers"
    MEMORY = "memory"
    FAILOVER = "failover"
    REPLAN = "replan"


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
    """One hot expert of the fleet's list.

    Attributes:
        times_median: its load over that of its layer's median expert.
        capacity_share: part of what a rank should do in even shares that one copy of it takes.
    """

    service: str
    ep_group: str
    phase: Phase
    layer: int
    expert: int
    times_median: float
    capacity_share: float
    is_harmful: bool


@dataclass(frozen=True, slots=True)
class AwaitedRank:
    """A rank that the others wait for, or that stands for a link or node they wait for.

    Attributes:
        ep_rank: the late rank; of a link the sender; of a node its first rank.
        kind: ``slow_rank``, ``overloaded_rank``, ``slow_link`` or ``slow_node``.
        times_usual: how many times as long as is usual.
    """

    service: str
    ep_group: str
    ep_rank: int
    kind: str
    times_usual: float


@dataclass(frozen=True, slots=True)
class PoolEnd:
    """When a memory pool of an EP group will be full at its growth, on the rank where that is first.

    Attributes:
        ep_rank: first rank of the engine that the pool belongs to.
        seconds: from the newest window on; 0 where it is full.
    """

    service: str
    ep_group: str
    ep_rank: int
    pool: MemoryPool
    seconds: float


@dataclass(frozen=True, slots=True)
class GroupCover:
    """What an EP group would lose with one of its ranks.

    Attributes:
        ep_rank: whose loss would take most of the traffic with it.
        lost_share: part of the assignments that go to experts which only that rank holds.
        uncovered_share: part of the assignments that go to experts which one rank alone holds, any rank.
    """

    service: str
    ep_group: str
    ep_rank: int
    lost_share: float
    uncovered_share: float


@dataclass(frozen=True, slots=True)
class ReplanGain:
    """By how much moving a few experts would lower max / mean rank load, net of noise, mean over layers."""

    service: str
    ep_group: str
    phase: Phase
    gain: float


@dataclass(frozen=True, slots=True)
class FindingCount:
    """How many ranks, layers, experts or pools something is wrong with; 0 says that it was looked for."""

    service: str
    ep_group: str
    kind: FindingKind
    count: int


@dataclass(frozen=True, slots=True)
class LookAge:
    """How long ago the oldest look of a kind was taken, of those that a judgement tells of."""

    kind: LookKind
    seconds: float


@dataclass(frozen=True, slots=True)
class FleetJudgement:
    """Everything that the analysis says now.

    Attributes:
        hot_experts: the most harmful of all deployments first.
        pool_ends: at most one of each pool of an EP group.
        look_ages: of what closer looks found: awaited, pool ends, covers, replans and their findings.
        left_out: EP groups and phases beyond what one judgement takes on.
    """

    balances: tuple[LayerBalance, ...] = ()
    hot_experts: tuple[ListedExpert, ...] = ()
    awaited: tuple[AwaitedRank, ...] = ()
    pool_ends: tuple[PoolEnd, ...] = ()
    covers: tuple[GroupCover, ...] = ()
    replans: tuple[ReplanGain, ...] = ()
    findings: tuple[FindingCount, ...] = ()
    look_ages: tuple[LookAge, ...] = ()
    left_out: int = 0
