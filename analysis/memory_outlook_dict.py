"""What comes next for the memory of an EP group, as JSON: ``schemas/reports/memory.schema.json``."""

from __future__ import annotations

import math
from typing import Any

from moescope.analysis.admission import Admission, EngineCaches, ReplicaCost
from moescope.analysis.memory_forecast import PoolForecast
from moescope.analysis.memory_outlook import Capacity, MemoryOutlook
from moescope.analysis.span_sections import json_number


def outlook_dict(outlook: MemoryOutlook) -> dict[str, Any]:
    """The JSON shape of an outlook."""
    model = outlook.model
    return {
        "forecasts": [_forecast_dict(one) for one in outlook.forecasts],
        "request": {
            "kda_slots": model.slots_per_request,
            "kda_slots_basis": model.slots_basis.value,
            "tokens_per_mla_block": json_number(model.tokens_per_block),
            "tokens_per_mla_block_basis": model.block_basis.value,
            "kda_slots_without_request": json_number(outlook.idle_slots),
        },
        "capacity": [_capacity_dict(one) for one in outlook.capacities],
        "one_more_replica": {
            "layers": outlook.replica_layers,
            "ranks": [_replica_dict(one, outlook) for one in outlook.replicas],
        },
    }


def _forecast_dict(one: PoolForecast) -> dict[str, Any]:
    return {
        "ep_ranks": list(one.ranks),
        "pool": one.pool.value,
        "unit": one.unit.value,
        "used": one.used,
        "limit": one.limit,
        "growth_per_minute": one.per_minute,
        "observed_seconds": one.stretch_seconds,
        "full_in_seconds": one.seconds,
        "full_in_seconds_low": one.low_seconds,
        "full_in_seconds_high": None if math.isinf(one.high_seconds) else one.high_seconds,
        "p_value": one.trend.p_value,
    }


def _capacity_dict(one: Capacity) -> dict[str, Any]:
    return {
        "ep_ranks": list(one.caches.ranks),
        **_caches_dict(one.caches),
        "crossover_context_tokens": json_number(one.crossover_tokens),
        "requests": [_admission_dict(admission) for admission in one.admissions],
    }


def _caches_dict(caches: EngineCaches) -> dict[str, Any]:
    return {
        "kda_slots_free": json_number(caches.free_slots),
        "mla_blocks_free": json_number(caches.free_blocks),
        "kda_slot_bytes": json_number(caches.slot_bytes),
        "mla_block_bytes": json_number(caches.block_bytes),
        "shares_one_set_of_blocks": caches.is_shared,
    }


def _admission_dict(one: Admission) -> dict[str, Any]:
    return {
        "context_tokens": one.context_tokens,
        "fit": one.fits,
        "fit_by_kda_state": one.by_kda,
        "fit_by_mla_kv_cache": one.by_mla,
        "binding_pool": None if one.binds is None else one.binds.value,
    }


def _replica_dict(cost: ReplicaCost, outlook: MemoryOutlook) -> dict[str, Any]:
    displaced = [(tokens, *cost.displaced(outlook.model, tokens)) for tokens in outlook.contexts]
    return {
        "ep_rank": cost.rank,
        "bytes": cost.bytes,
        "headroom_bytes": cost.headroom_bytes,
        "fits": cost.fits,
        "missing_bytes": cost.missing_bytes,
        "kda_slots_taken": cost.slots,
        "mla_blocks_taken": cost.blocks,
        "displaced": [
            {"context_tokens": tokens, "requests_by_kda_state": by_kda, "requests_by_mla_kv_cache": by_mla}
            for tokens, by_kda, by_mla in displaced
        ],
    }
