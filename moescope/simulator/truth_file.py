"""The file of ``--truth``: the ledgers of a fleet in the words of the views."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from moescope.schemas import attributes as a
from moescope.schemas import metrics
from moescope.schemas.attributes import Component, Phase
from moescope.schemas.metrics import Metric
from moescope.schemas.records import Attributes
from moescope.simulator.group import SimulatedGroup
from moescope.simulator.plan import FleetPlan
from moescope.simulator.rank import gpu_of
from moescope.simulator.scenarios import plant_of
from moescope.simulator.truth import Ledger, RequestTruth, Truth, key_of

LATENCIES = ("ttft", "tpot", "itl", "queue", "e2e")


def write_truth(
    path: Path, truth: Truth, plan: FleetPlan, groups: Iterable[SimulatedGroup], clock_ns: tuple[int, int]
) -> None:
    """Write the truth. Whole numbers are exact; seconds are sums of doubles.

    ``{"layers": […], "phases": {"prefill": [[…]], "decode": [[…]]}, …}``; what is by rank is a list, what is
    by peer a list of lists. Only ``clock_ns`` differs between two runs of the same seed and span.
    """
    document = {
        "layers": list(truth.shape.moe_layers),
        "phases": {phase.value: truth.counts(phase).tolist() for phase in Phase},
        "model": truth.shape.name,
        "service": plan.service_name,
        "seed": plan.seed,
        "ranks": plan.ranks,
        "tensor_parallel": plan.tensor_parallel,
        "windows": truth.windows,
        "clock_ns": list(clock_ns),
        "scenarios": [
            {
                "scenario": item.scenario.value,
                "start_seconds": item.start_seconds,
                "end_seconds": None if math.isinf(item.end_seconds) else item.end_seconds,
                "windows": truth.active_windows[item.scenario.value],
                "plant": dict(plant_of(item.scenario, truth.shape, plan.ranks)),
            }
            for item in plan.schedule
        ],
        "groups": {group.name: _group(truth, group) for group in groups},
    }
    path.write_text(json.dumps(document), encoding="utf-8")


def _group(truth: Truth, group: SimulatedGroup) -> dict[str, Any]:
    ranks = [truth.ledger(group.name, Component.RANK, rank) for rank in range(group.ranks)]
    scheduler = truth.ledger(group.name, Component.SCHEDULER, 0)
    frontend = truth.ledger(group.name, Component.FRONTEND, 0)
    return {
        "role": group.role.value,
        "expert_tokens": {phase.value: truth.experts[group.name, phase].tolist() for phase in Phase},
        "tokens": _tokens(ranks),
        "steps": _steps(ranks),
        "dispatch": _dispatch(ranks),
        "wait_ns": {
            stage.value: _matrix(ranks, metrics.DISPATCH_WAIT, {a.STAGE: stage.value})
            for stage in a.DispatchStage
        },
        "traffic": {phase.value: _traffic(ranks, phase) for phase in Phase},
        "expert_group_ns": {
            phase.value: np.sum(
                _matrix(ranks, metrics.EXPERT_GROUP_DURATION, {a.PHASE: phase.value}, group.shape.num_layers),
                axis=0,
            ).tolist()
            for phase in Phase
        },
        "failovers": _failovers(ranks, group),
        "placement": {
            "physical_to_logical_map": group.placement.physical_to_logical_map.tolist(),
            "expert_bytes": group.facts.expert_bytes,
        },
        "memory": [_memory(ledger) for ledger in ranks],
        "cache": [_cache(ledger) for ledger in ranks],
        "gpu": [_gpu(ledger, rank) for rank, ledger in enumerate(ranks)],
        "prefix_cache": {
            result.value: _counter(scheduler, metrics.PREFIX_CACHE_TOKENS, {a.RESULT: result.value})
            for result in a.CacheResult
        },
        "load": {
            name: {
                "last": scheduler.states.get(key_of(metric), 0),
                "sum": scheduler.state_sums[key_of(metric)],
            }
            for name, metric in (
                ("running", metrics.REQUESTS_RUNNING),
                ("waiting", metrics.REQUESTS_WAITING),
            )
        },
        "latency": {name: _latency(truth.requests[group.name], frontend, name) for name in LATENCIES},
        "goodput": {**truth.requests[group.name].goodput, "ranks": group.ranks},
        "lost_requests": truth.lost[group.name],
        "turned_away_requests": truth.turned_away[group.name],
    }


def _counter(ledger: Ledger, metric: Metric, attributes: Attributes | None = None) -> int:
    return int(ledger.counters.get(key_of(metric, attributes or {}), 0))


def _by_rank(ranks: list[Ledger], metric: Metric, attributes: Attributes) -> list[int]:
    return [_counter(ledger, metric, attributes) for ledger in ranks]


def _tokens(ranks: list[Ledger]) -> dict[str, dict[str, list[int]]]:
    none = a.Excluded.NONE.value
    load = {
        phase.value: {none: _by_rank(ranks, metrics.TOKENS, {a.PHASE: phase.value, a.EXCLUDED: none})}
        for phase in Phase
    }
    left_out = {
        excluded.value: _by_rank(ranks, metrics.TOKENS, {a.EXCLUDED: excluded.value})
        for excluded in a.Excluded
        if excluded is not a.Excluded.NONE
    }
    return {**load, "": left_out}


def _observed(
    ranks: list[Ledger], metric: Metric, attributes: Attributes, part: Callable[[tuple[int, float]], Any]
) -> list[Any]:
    return [part(ledger.distributions.get(key_of(metric, attributes), (0, 0.0))) for ledger in ranks]


def _count(item: tuple[int, float]) -> int:
    return item[0]


def _total(item: tuple[int, float]) -> float:
    return item[1]


def _steps(ranks: list[Ledger]) -> dict[str, dict[str, list[Any]]]:
    return {
        phase.value: {
            "steps": _observed(ranks, metrics.STEP_DURATION, {a.PHASE: phase.value}, _count),
            "seconds": _observed(ranks, metrics.STEP_DURATION, {a.PHASE: phase.value}, _total),
            "tokens": [
                round(total)
                for total in _observed(ranks, metrics.STEP_TOKENS, {a.PHASE: phase.value}, _total)
            ],
        }
        for phase in Phase
    }


def _dispatch(ranks: list[Ledger]) -> dict[str, dict[str, dict[str, list[Any]]]]:
    return {
        phase.value: {
            stage.value: {
                "calls": _observed(ranks, metrics.DISPATCH_DURATION, _at(stage, phase), _count),
                "seconds": _observed(ranks, metrics.DISPATCH_DURATION, _at(stage, phase), _total),
            }
            for stage in a.DispatchStage
        }
        for phase in Phase
    }


def _at(stage: a.DispatchStage, phase: Phase) -> Attributes:
    return {a.STAGE: stage.value, a.PHASE: phase.value}


def _matrix(
    ranks: list[Ledger], metric: Metric, attributes: Attributes, width: int | None = None
) -> list[list[int]]:
    nothing = np.zeros((1, width or len(ranks)), dtype=np.int64)
    return [ledger.indexed.get(key_of(metric, attributes), nothing)[0].tolist() for ledger in ranks]


def _traffic(ranks: list[Ledger], phase: Phase) -> dict[str, list[list[int]]]:
    at = {a.PHASE: phase.value}
    return {
        "sent": _matrix(ranks, metrics.RANK_IO, {**at, a.DIRECTION: a.Direction.TRANSMIT.value}),
        "received": _matrix(ranks, metrics.RANK_IO, {**at, a.DIRECTION: a.Direction.RECEIVE.value}),
        "tokens": _matrix(ranks, metrics.RANK_TOKENS, at),
        "assignments": _matrix(ranks, metrics.RANK_ASSIGNMENTS, at),
    }


def _failovers(ranks: list[Ledger], group: SimulatedGroup) -> list[dict[str, Any]]:
    rows = []
    for reason in a.FailoverReason:
        key = key_of(metrics.EXPERT_FAILOVERS, {a.REASON: reason.value})
        found = [ledger.indexed[key] for ledger in ranks if key in ledger.indexed]
        if not found:
            continue
        summed = np.sum(found, axis=0)
        rows += [
            {
                "layer": group.shape.moe_layers[row],
                "expert": int(expert),
                "reason": reason.value,
                "failovers": int(summed[row, expert]),
            }
            for row, expert in np.argwhere(summed)
        ]
    return rows


def _memory(ledger: Ledger) -> dict[str, dict[str, int]]:
    return {
        pool.value: {
            "used": int(ledger.states[key_of(metrics.MEMORY_USAGE, {a.POOL: pool.value})]),
            "limit": int(ledger.states[key_of(metrics.MEMORY_LIMIT, {a.POOL: pool.value})]),
        }
        for pool in a.MemoryPool
        if key_of(metrics.MEMORY_USAGE, {a.POOL: pool.value}) in ledger.states
    }


def _cache(ledger: Ledger) -> dict[str, int]:
    states = {
        "kda_slots": metrics.KDA_STATE_SLOTS,
        "kda_slots_limit": metrics.KDA_STATE_SLOTS_LIMIT,
        "mla_blocks": metrics.MLA_KV_CACHE_BLOCKS,
        "mla_blocks_limit": metrics.MLA_KV_CACHE_BLOCKS_LIMIT,
    }
    return {
        **{name: int(ledger.states.get(key_of(metric), 0)) for name, metric in states.items()},
        **{
            f"kda_copies_{'on_write' if reason is a.CopyReason.COPY_ON_WRITE else reason.value}": _counter(
                ledger, metrics.KDA_STATE_COPIES, {a.REASON: reason.value}
            )
            for reason in a.CopyReason
        },
    }


def _gpu(ledger: Ledger, rank: int) -> dict[str, int | float]:
    at = {a.HW_ID: gpu_of(rank)}
    return {
        "utilization": ledger.states.get(key_of(metrics.GPU_UTILIZATION, at), 0.0),
        "memory_used_bytes": int(ledger.states.get(key_of(metrics.GPU_MEMORY_USAGE, at), 0)),
        "memory_limit_bytes": int(ledger.states.get(key_of(metrics.GPU_MEMORY_LIMIT, at), 0)),
        "sent_bytes": _counter(ledger, metrics.GPU_IO, {**at, a.DIRECTION: a.Direction.TRANSMIT.value}),
        "received_bytes": _counter(ledger, metrics.GPU_IO, {**at, a.DIRECTION: a.Direction.RECEIVE.value}),
    }


def _latency(requests: RequestTruth, frontend: Ledger, name: str) -> dict[str, int | float]:
    """From the simulated requests, but the gaps between tokens: those exist only as they are reported."""
    if name == "itl":
        found = [
            item for key, item in frontend.distributions.items() if key[0] == metrics.INTER_TOKEN_LATENCY.name
        ]
        return {"observations": sum(map(_count, found)), "seconds": sum(map(_total, found))}
    observations, seconds = requests.latency[name]
    return {"observations": observations, "seconds": seconds}
