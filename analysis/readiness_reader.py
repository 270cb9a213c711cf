"""Read what a readiness protocol needs from a store."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from moescope.analysis import words
from moescope.analysis.assessment import read_assessment
from moescope.analysis.distribution import read_distributions
from moescope.analysis.expert_load import LoadScope, list_scopes
from moescope.analysis.front_ends import read_front_ends
from moescope.analysis.memory import PoolMemory, read_pool_memory
from moescope.analysis.readiness_delay import read_slow_forecast
from moescope.analysis.readiness_evidence import (
    DelayForecast,
    GroupEvidence,
    ReadinessEvidence,
    Room,
    Unknown,
)
from moescope.analysis.readiness_protocol import ExpertMetric, ReadinessProtocol
from moescope.analysis.readiness_room import read_room
from moescope.analysis.readiness_slow import read_slow_workers
from moescope.analysis.requests import REQUEST_METRICS, Goodput, pick_request_latency, read_goodput
from moescope.analysis.span import Deployment, Span, cover, list_deployments, plan_options
from moescope.analysis.store import Store
from moescope.schemas.coverage import COVERAGE, Engine, Fill
from moescope.schemas.errors import UsageError
from moescope.schemas.metrics import EXPERT_FAILOVERS
from moescope.schemas.settings import Settings

_NOT_ASKED: Final = Unknown("The protocol does not ask.")
_NO_LOAD: Final = Unknown("No expert load is stored: no rank reports which experts its tokens take.")
_NOT_PREDICTED: Final = Unknown(
    "What a lost worker does to latency is not predicted: it depends on how the engine takes its work over."
)


def limits_of(protocol: ReadinessProtocol, settings: Settings) -> Settings:
    """The settings with the protocol's limits of balance and hot experts in their place."""
    rules = protocol.load_balance_check
    if rules is None:
        return settings
    return dataclasses.replace(
        settings,
        imbalance_ratio=rules.max_ratio,
        hot_expert_ratio=rules.hot_experts.times_median,
        hot_expert_confidence=rules.hot_experts.confidence,
        hot_expert_capacity_share=rules.hot_experts.max_worker_share,
    )


def read_evidence(store: Store, protocol: ReadinessProtocol, settings: Settings) -> ReadinessEvidence:
    """Read the deployment that the protocol names, or the only one.

    Raises:
        UsageError: there is no such deployment or EP group, or it has to be named.
        StoreError: the store cannot answer.
    """
    deployment = _choose(list_deployments(store), protocol)
    limits = limits_of(protocol, settings)
    whole = cover(deployment, protocol.window_seconds)
    goodput = read_goodput(store, whole, settings)
    groups = _groups(deployment, protocol)
    return ReadinessEvidence(
        source=(
            f"{deployment.service}, {words.duration(whole.seconds)} to {whole.end:%Y-%m-%d %H:%M:%S} UTC, "
            f"{words.count(len(groups), 'EP group')}"
        ),
        groups=tuple(_read_group(store, deployment, group, protocol, limits, goodput) for group in groups),
        goodput=goodput,
        contract_ttft_seconds=settings.contract_ttft_seconds,
        contract_tpot_seconds=settings.contract_tpot_seconds,
        latency=pick_request_latency(read_distributions(store, whole, REQUEST_METRICS)),
        requests_by_front_end=_front_ends(store, whole),
    )


def _choose(deployments: tuple[Deployment, ...], protocol: ReadinessProtocol) -> Deployment:
    names = ", ".join(one.service for one in deployments)
    if not deployments:
        raise UsageError(
            "no telemetry is stored, so nothing can be checked. Instrument an engine, or start "
            "`moescope simulate`; `moescope doctor` says what is missing"
        )
    if protocol.service is None:
        if len(deployments) > 1:
            raise UsageError(f"several deployments are stored; name one of them with --service: {names}")
        return deployments[0]
    for deployment in deployments:
        if deployment.service == protocol.service:
            return deployment
    raise UsageError(f"nothing is stored of the service {protocol.service!r}; stored are: {names}")


def _groups(deployment: Deployment, protocol: ReadinessProtocol) -> tuple[str, ...]:
    if protocol.ep_group is None:
        return deployment.ep_groups
    if protocol.ep_group not in deployment.ep_groups:
        known = ", ".join(deployment.ep_groups)
        raise UsageError(f"{deployment.service} has no EP group {protocol.ep_group!r}; it has: {known}")
    return (protocol.ep_group,)


def _read_group(  # noqa: PLR0917 - what is read once for all groups is handed on
    store: Store,
    deployment: Deployment,
    ep_group: str,
    protocol: ReadinessProtocol,
    limits: Settings,
    goodput: Goodput,
) -> GroupEvidence:
    span = cover(deployment, protocol.window_seconds, ep_group=ep_group)
    of_group = {"service": deployment.service, "ep_group": ep_group}
    ((top_k, engines),) = [
        (row["top_k"], row["engines"]) for row in store.query("expert_top_k", **of_group).to_pylist()
    ]
    scopes = [
        scope
        for scope in list_scopes(store)
        if (scope.service, scope.ep_group) == (deployment.service, ep_group)
    ]
    pools = read_pool_memory(store, span, limits)
    return GroupEvidence(
        ep_group=ep_group,
        plan_options=plan_options(deployment.service, ep_group),
        loads={
            scope.phase: read_assessment(store, scope, protocol.window_seconds, limits) for scope in scopes
        }
        or _NO_LOAD,
        top_k=top_k or Unknown("No expert load is stored of the last hours."),
        tokens_per_request=(
            goodput.output_tokens / goodput.requests
            if goodput.requests
            else Unknown("No request finished in the window, so its length is unknown.")
        ),
        slow_workers=read_slow_workers(store, span, limits),
        when_slow=_when_slow(store, scopes, protocol, limits),
        when_down=_NOT_PREDICTED,
        ages=_ages(store, of_group, engines),
        pools=pools,
        room=_room(store, span, pools, limits, protocol),
    )


def _room(
    store: Store, span: Span, pools: PoolMemory, limits: Settings, protocol: ReadinessProtocol
) -> tuple[Room, ...] | Unknown:
    wanted = None if protocol.memory is None else protocol.memory.requests_that_fit
    if wanted is None:
        return _NOT_ASKED
    return read_room(store, span, pools, limits, wanted)


def _when_slow(
    store: Store, scopes: Sequence[LoadScope], protocol: ReadinessProtocol, limits: Settings
) -> DelayForecast | Unknown:
    rules = None if protocol.partial_failure is None else protocol.partial_failure.worker_slow
    if (
        rules is None
        or (rules.max_token_share, rules.max_ttft_seconds, rules.max_tpot_seconds) == (None,) * 3
    ):
        return _NOT_ASKED
    return read_slow_forecast(store, scopes, protocol.window_seconds, limits, rules)


def _ages(
    store: Store, of_group: Mapping[str, str], engines: list[str]
) -> Mapping[ExpertMetric, Mapping[int, float] | Unknown]:
    ages: dict[ExpertMetric, dict[int, float]] = {metric: {} for metric in ExpertMetric}
    for row in store.query("expert_metric_ages", **of_group).to_pylist():
        ages[ExpertMetric(row["kind"])][row["ep_rank"]] = row["age_seconds"]
    answer: dict[ExpertMetric, Mapping[int, float] | Unknown] = dict(ages)
    if not ages[ExpertMetric.FAILOVER_COUNT]:
        answer[ExpertMetric.FAILOVER_COUNT] = _no_failovers(engines)
    return answer


def _no_failovers(engines: list[str]) -> Unknown:
    """None was ever counted: is that because nothing happened, or because nobody can say?"""
    (row,) = [one for one in COVERAGE if one.metric is EXPERT_FAILOVERS]
    cells: dict[str, Any] = {engine.value.lower(): cell for engine, cell in row.cells.items()}
    for name in sorted(engines):
        cell = cells.get(name)
        if cell is not None and cell.fill is Fill.ABSENT:
            label = {engine.value.lower(): engine.value for engine in Engine}[name]
            return Unknown(f"{label} says nothing of failovers: {cell.note}.")
    return Unknown("No failover happened in a day, and an engine says nothing while there is none.")


def _front_ends(store: Store, span: Span) -> Mapping[str, int] | Unknown:
    found = read_front_ends(store, span)
    if not found:
        return Unknown("No front end reported a finished request in the window.")
    return {one.instance: one.requests for one in found}
