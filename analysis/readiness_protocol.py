"""The readiness protocol: what a deployment has to hold. A section that is left out is None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from moescope.analysis.failover_impact import FailoverStrategy
from moescope.schemas.attributes import MemoryPool, Phase

DEFAULT_WINDOW_SECONDS: Final = 900.0


class ImbalanceMeasure(StrEnum):
    """How the balance of a layer over its ranks is said."""

    MAX_OVER_MEAN = "max_over_mean"
    MEAN_OVER_MAX = "mean_over_max"
    MAX_OVER_MEAN_MINUS_1 = "max_over_mean_minus_1"

    def of_ratio(self, ratio: float) -> float:
        """A max / mean in this measure."""
        if self is ImbalanceMeasure.MEAN_OVER_MAX:
            return 1 / ratio
        return ratio - 1 if self is ImbalanceMeasure.MAX_OVER_MEAN_MINUS_1 else ratio

    def to_ratio(self, value: float) -> float:
        """A value of this measure as max / mean."""
        if self is ImbalanceMeasure.MEAN_OVER_MAX:
            return 1 / value
        return value + 1 if self is ImbalanceMeasure.MAX_OVER_MEAN_MINUS_1 else value

    @property
    def formula(self) -> str:
        """As people write it."""
        return {
            ImbalanceMeasure.MAX_OVER_MEAN: "max / mean",
            ImbalanceMeasure.MEAN_OVER_MAX: "mean / max",
            ImbalanceMeasure.MAX_OVER_MEAN_MINUS_1: "max / mean − 1",
        }[self]


MEASURE_LIMITS: Final[Mapping[ImbalanceMeasure, tuple[float, float]]] = {
    ImbalanceMeasure.MAX_OVER_MEAN: (1.0, float("inf")),
    ImbalanceMeasure.MEAN_OVER_MAX: (1e-9, 1.0),
    ImbalanceMeasure.MAX_OVER_MEAN_MINUS_1: (1e-9, float("inf")),
}
"""What each measure can be, its least and its most."""


class Remedy(StrEnum):
    """What the report tells to do where the balance fails."""

    REPLICATE = "replicate_hot_experts"
    REBALANCE = "rebalance"
    ALERT = "alert"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRules:
    """Experts of each MoE layer; ``experts_per_worker`` does not count the ``redundant_experts``."""

    total_experts: int
    workers: int
    experts_per_worker: int
    redundant_experts: int
    failover_strategy: FailoverStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class HotExpertRules:
    """See the settings of the same meaning; ``max_worker_share`` is a part of a rank's even load."""

    times_median: float = 2.0
    confidence: float = 0.99
    max_worker_share: float = 0.5
    max_harmful: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceRules:
    """``acceptable_imbalance_ratio`` is a value of ``measure``."""

    measure: ImbalanceMeasure
    acceptable_imbalance_ratio: float
    phases: tuple[Phase, ...]
    hot_experts: HotExpertRules
    action: Remedy

    @property
    def max_ratio(self) -> float:
        """The limit as max / mean."""
        return self.measure.to_ratio(self.acceptable_imbalance_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDownRules:
    """Shares from 0 to 1, seconds; None: no limit, of ``ranks``: each one."""

    ranks: tuple[int, ...] | None
    max_traffic_share: float
    max_token_share: float | None
    max_request_share: float | None
    max_imbalance_ratio: float | None
    max_ttft_seconds: float | None
    max_tpot_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSlowRules:
    """``factor`` times the others; None: no limit, of ``rank``: each one."""

    rank: int | None
    factor: float
    max_token_share: float | None
    max_ttft_seconds: float | None
    max_tpot_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterDownRules:
    """None: no limit."""

    outage_seconds: float
    max_request_share: float | None
    max_ttft_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialFailureRules:
    """None where the file leaves a part out."""

    worker_down: WorkerDownRules | None
    worker_slow: WorkerSlowRules | None
    router_down: RouterDownRules | None


class ExpertMetric(StrEnum):
    """Numbers of each expert that a protocol can ask for."""

    ACTIVATION_COUNT = "activation_count_per_minute"
    LATENCY = "latency"
    MEMORY = "memory"
    FAILOVER_COUNT = "failover_count"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRules:
    """Oldest that each number may be, seconds; those that are not needed are not in it."""

    max_age_seconds: Mapping[ExpertMetric, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingRequests:
    """So many more requests of ``tokens`` each have to fit on every rank."""

    requests: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRules:
    """Used / limit of each pool that grows with the work, from 0 to 1."""

    max_used_ratio: Mapping[MemoryPool, float]
    requests_that_fit: FittingRequests | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputRules:
    """``contract_*`` is None where the settings' is meant."""

    min_share: float
    min_requests: int
    contract_ttft_seconds: float | None
    contract_tpot_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessProtocol:
    """Everything that a file asks for; ``name`` is empty where it does not say."""

    name: str
    service: str | None
    ep_group: str | None
    window_seconds: float
    expert_placement: PlacementRules | None
    load_balance_check: BalanceRules | None
    partial_failure: PartialFailureRules | None
    expert_metrics: MetricRules | None
    memory: MemoryRules | None
    goodput: GoodputRules | None
