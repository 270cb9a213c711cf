"""Words of a readiness protocol made numbers, and its defaults.

The file's shape was checked before, by ``schemas/reports/readiness_protocol.schema.json``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from moescope.analysis.failover_impact import FailoverStrategy
from moescope.analysis.readiness_protocol import (
    DEFAULT_WINDOW_SECONDS,
    BalanceRules,
    ExpertMetric,
    FittingRequests,
    GoodputRules,
    HotExpertRules,
    ImbalanceMeasure,
    MemoryRules,
    MetricRules,
    PartialFailureRules,
    PlacementRules,
    ReadinessProtocol,
    Remedy,
    RouterDownRules,
    WorkerDownRules,
    WorkerSlowRules,
)
from moescope.schemas.attributes import MemoryPool, Phase

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_MEASURE_DEFAULTS: Final = {
    ImbalanceMeasure.MAX_OVER_MEAN: 2.0,
    ImbalanceMeasure.MEAN_OVER_MAX: 0.5,
    ImbalanceMeasure.MAX_OVER_MEAN_MINUS_1: 1.0,
}


def make_protocol(values: Mapping[str, Any]) -> ReadinessProtocol:
    """Make the records from values that fit the schema."""

    def section(name: str, make: Any) -> Any:
        return make(values[name]) if name in values else None

    return ReadinessProtocol(
        name=values.get("name", ""),
        service=values.get("service"),
        ep_group=values.get("ep_group"),
        window_seconds=_seconds(values.get("window")) or DEFAULT_WINDOW_SECONDS,
        expert_placement=section("expert_placement", _placement),
        load_balance_check=section("load_balance_check", _balance),
        partial_failure=section("partial_failure", _partial_failure),
        expert_metrics=section("expert_metrics", _metrics),
        memory=section("memory", _memory),
        goodput=section("goodput", _goodput),
    )


def _placement(values: Mapping[str, Any]) -> PlacementRules:
    total, workers = values["total_experts"], values["workers"]
    return PlacementRules(
        total_experts=total,
        workers=workers,
        experts_per_worker=values.get("experts_per_worker", -(-total // workers)),
        redundant_experts=values.get("redundant_experts", 0),
        failover_strategy=FailoverStrategy(values.get("failover_strategy", FailoverStrategy.REASSIGN)),
    )


def _balance(values: Mapping[str, Any]) -> BalanceRules:
    measure = ImbalanceMeasure(values.get("measure", ImbalanceMeasure.MAX_OVER_MEAN))
    return BalanceRules(
        measure=measure,
        acceptable_imbalance_ratio=float(
            values.get("acceptable_imbalance_ratio", _MEASURE_DEFAULTS[measure])
        ),
        phases=tuple(Phase(phase) for phase in values.get("phases", tuple(Phase))),
        hot_experts=_hot_experts(values.get("hot_experts", {})),
        action=Remedy(values.get("action", Remedy.REPLICATE)),
    )


def _hot_experts(values: Mapping[str, Any]) -> HotExpertRules:
    share = _share(values.get("max_worker_share", HotExpertRules().max_worker_share))
    return HotExpertRules(**{**values, "max_worker_share": share})


def _partial_failure(values: Mapping[str, Any]) -> PartialFailureRules:
    down, slow, router = (values.get(name) for name in ("worker_down", "worker_slow", "router_down"))
    return PartialFailureRules(
        worker_down=None
        if down is None
        else WorkerDownRules(
            ranks=tuple(down["ranks"]) if "ranks" in down else None,
            max_traffic_share=_share(down.get("max_traffic_share")) or 0.0,
            max_token_share=_share(down.get("max_token_share")),
            max_request_share=_share(down.get("max_request_share")),
            max_imbalance_ratio=down.get("max_imbalance_ratio"),
            max_ttft_seconds=_seconds(down.get("max_ttft")),
            max_tpot_seconds=_seconds(down.get("max_tpot")),
        ),
        worker_slow=None
        if slow is None
        else WorkerSlowRules(
            rank=slow.get("rank"),
            factor=float(slow.get("factor", 2.0)),
            max_token_share=_share(slow.get("max_token_share")),
            max_ttft_seconds=_seconds(slow.get("max_ttft")),
            max_tpot_seconds=_seconds(slow.get("max_tpot")),
        ),
        router_down=None
        if router is None
        else RouterDownRules(
            outage_seconds=_seconds(router.get("outage", "30s")) or 0.0,
            max_request_share=_share(router.get("max_request_share")),
            max_ttft_seconds=_seconds(router.get("max_ttft")),
        ),
    )


def _metrics(values: Mapping[str, Any]) -> MetricRules:
    common = _seconds(values.get("max_age", "2m")) or 0.0
    ages: dict[ExpertMetric, float] = {}
    for metric in ExpertMetric:
        wanted = values.get(metric.value, "15m" if metric is ExpertMetric.MEMORY else True)
        if wanted is True:
            ages[metric] = common
        elif wanted is not False:
            ages[metric] = _seconds(wanted) or 0.0
    return MetricRules(max_age_seconds=ages)


def _memory(values: Mapping[str, Any]) -> MemoryRules:
    common = _share(values.get("max_used_ratio", 0.95)) or 0.0
    pools = values.get("pools", {})
    limits = {
        pool: common if pool.value not in pools else _share(pools[pool.value]) or 0.0
        for pool in (MemoryPool.KDA_STATE, MemoryPool.MLA_KV_CACHE, MemoryPool.TRANSFER)
    }
    fitting = values.get("requests_that_fit")
    return MemoryRules(
        max_used_ratio=limits,
        requests_that_fit=None
        if fitting is None
        else FittingRequests(requests=fitting.get("requests", 1), tokens=fitting["tokens"]),
    )


def _goodput(values: Mapping[str, Any]) -> GoodputRules:
    contract = values.get("contract", {})
    min_share = _share(values.get("min_share", 0.95))
    return GoodputRules(
        min_share=0.95 if min_share is None else min_share,
        min_requests=values.get("min_requests", 1),
        contract_ttft_seconds=_seconds(contract.get("ttft")),
        contract_tpot_seconds=_seconds(contract.get("tpot")),
    )


def _share(value: float | str | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, str):
        return float(value.rstrip("% ")) / 100
    return float(value)


def _seconds(value: float | str | None) -> float | None:
    if value is None:
        return None
    text = str(value).strip()
    match = re.fullmatch(r"([0-9.eE+-]+)\s*([a-z]*)", text)
    return float(value if match is None else match[1]) * _SECONDS["" if match is None else match[2]]
