"""What comes next for the memory of one EP group: which pool ends, who fits, what one more copy costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from moescope.analysis.admission import (
    Admission,
    EngineCaches,
    ReplicaCost,
    admit,
    crossover_tokens,
    price_replica,
)
from moescope.analysis.gpus import read_gpus
from moescope.analysis.memory import PoolMemory
from moescope.analysis.memory_forecast import PoolForecast, forecast_pools
from moescope.analysis.pool_series import PoolStates, read_pool_states
from moescope.analysis.prefix_cache import read_prefix_cache
from moescope.analysis.request_footprint import Basis, RequestModel, slots_of_a_request, tokens_of_a_block
from moescope.analysis.requests import read_goodput
from moescope.analysis.span import Span
from moescope.analysis.store import Store
from moescope.schemas.attributes import MemoryPool
from moescope.schemas.settings import Settings

DEFAULT_CONTEXTS: Final = (8 * 1024, 128 * 1024, 1024 * 1024)
"""Tokens: a chat, a long document, all that the model takes."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one engine still takes.

    Attributes:
        caches: its caches now.
        admissions: by context, in the order of the contexts.
        crossover_tokens: context from which on the MLA KV cache binds; None where that is not known.
    """

    caches: EngineCaches
    admissions: tuple[Admission, ...]
    crossover_tokens: float | None


@dataclass(frozen=True, slots=True)
class MemoryOutlook:
    """What comes next for one EP group.

    Attributes:
        forecasts: pools that are full at their growth, the first to be full first.
        contexts: tokens of the requests that are counted.
        model: what one running request holds.
        capacities: of each engine whose caches are known.
        idle_slots: KDA state slots in use that no running request holds, over all engines; None where
            that cannot be told.
        replicas: what one more copy in every layer costs each rank that says how large an expert is.
        replica_layers: layers with routed experts; 0 where none is known.
    """

    forecasts: tuple[PoolForecast, ...]
    contexts: tuple[int, ...]
    model: RequestModel
    capacities: tuple[Capacity, ...]
    idle_slots: float | None
    replicas: tuple[ReplicaCost, ...]
    replica_layers: int

    def fits(self, column: int) -> int | None:
        """Requests of the context at ``column`` that fit all engines together; None where one is unknown."""
        counts = [one.admissions[column].fits for one in self.capacities]
        known = [count for count in counts if count is not None]
        return sum(known) if known and len(known) == len(counts) else None

    def tightest(self, column: int) -> Capacity | None:
        """The engine that takes fewest requests of the context at ``column``."""
        known = [one for one in self.capacities if one.admissions[column].fits is not None]
        return min(known, key=lambda one: one.admissions[column].fits or 0, default=None)


def read_memory_outlook(
    store: Store, span: Span, memory: PoolMemory, settings: Settings, contexts: Sequence[int] = ()
) -> MemoryOutlook:
    """Read what the caches did over a span, and say what comes of it.

    Args:
        store: where it is stored.
        span: of one EP group.
        memory: the newest state of its pools.
        settings: ``mla_block_tokens``.
        contexts: tokens; :data:`DEFAULT_CONTEXTS` if none.

    Raises:
        StoreError: the store cannot answer.
    """
    contexts = tuple(contexts) or DEFAULT_CONTEXTS
    states = read_pool_states(store, span)
    model = measure_request(states, _mean_request(store, span, settings), settings.mla_block_tokens)
    caches = states.caches()
    sizes = {row["ep_rank"]: row for row in store.query("replica_size", **span.params()).to_pylist()}
    return MemoryOutlook(
        forecast_pools(states.series()),
        contexts,
        model,
        tuple(
            Capacity(
                one, tuple(admit(one, model, tokens) for tokens in contexts), crossover_tokens(one, model)
            )
            for one in caches
        ),
        _idle_slots(states, model),
        tuple(
            _price_replicas(
                {rank: int(row["bytes"]) for rank, row in sizes.items()}, caches, memory, store, span
            )
        ),
        max((int(row["layers"]) for row in sizes.values()), default=0),
    )


@dataclass(frozen=True, slots=True)
class MeanRequest:
    """Mean tokens of a request over a span; NaN where none finished."""

    prompt_tokens: float
    output_tokens: float


def measure_request(states: PoolStates, mean: MeanRequest, block_tokens: int) -> RequestModel:
    """Say what a running request holds, and how that is known.

    Args:
        states: of the caches and of the running requests over a span.
        mean: the requests of the span.
        block_tokens: tokens of a block as configured; 0 where they are to be measured.
    """
    running = states.running()
    slots = slots_of_a_request(states.used(MemoryPool.KDA_STATE), running)
    basis = (slots or 1.0, Basis.ASSUMED if slots is None else Basis.MEASURED)
    if block_tokens:
        return RequestModel(*basis, float(block_tokens), Basis.SETTING)
    blocks = states.used(MemoryPool.MLA_KV_CACHE)
    both = np.isfinite(blocks) & np.isfinite(running)
    tokens = None
    if both.any() and not math.isnan(mean.prompt_tokens):
        tokens = tokens_of_a_block(
            *(float(blocks[both].mean()), float(running[both].mean())),
            prompt_tokens=mean.prompt_tokens,
            output_tokens=mean.output_tokens,
        )
    return RequestModel(*basis, tokens, Basis.UNKNOWN if tokens is None else Basis.MEASURED)


def _mean_request(store: Store, span: Span, settings: Settings) -> MeanRequest:
    """Of the whole deployment: prompts are looked up in one EP group and finish in another."""
    everywhere = replace(span, ep_group="")
    looked_up = read_prefix_cache(store, everywhere).looked_up
    finished = read_goodput(store, everywhere, settings)
    if not (finished.requests and looked_up):
        return MeanRequest(math.nan, math.nan)
    return MeanRequest(looked_up / finished.requests, finished.output_tokens / finished.requests)


def _idle_slots(states: PoolStates, model: RequestModel) -> float | None:
    if model.slots_basis is not Basis.MEASURED:
        return None
    idle = states.used(MemoryPool.KDA_STATE) - model.slots_per_request * states.running()
    known = idle[np.isfinite(idle)]
    return max(float(known[-1]), 0.0) if len(known) else None


def _price_replicas(
    replica_bytes: Mapping[int, int],
    caches: Sequence[EngineCaches],
    memory: PoolMemory,
    store: Store,
    span: Span,
) -> list[ReplicaCost]:
    device: dict[int, tuple[float, float]] = {}
    for gpu in read_gpus(store, span):
        used, limit = device.get(gpu.ep_rank, (0.0, 0.0))
        if gpu.memory_limit_bytes:
            device[gpu.ep_rank] = used + (gpu.memory_used_bytes or 0.0), limit + gpu.memory_limit_bytes
    reserved = np.nansum(np.fmax(memory.used_bytes, memory.limit_bytes), axis=1)
    reserved_by_rank = dict(zip(memory.ranks.tolist(), reserved.tolist(), strict=True))
    engine_of = {rank: one for one in caches for rank in one.ranks}
    found = []
    for rank, size in replica_bytes.items():
        used, limit = device.get(rank, (math.nan, math.nan))
        headroom = limit - max(used, reserved_by_rank.get(rank, 0.0))
        found.append(price_replica(rank, size, headroom, engine_of.get(rank)))
    return found
