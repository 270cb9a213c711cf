"""How many more requests of a context length fit each engine, which cache binds, what one more copy costs.

A request holds KDA state slots for as long as it runs, however long it is, and MLA KV cache blocks for every
token of its context. So short requests end the slots, long ones the blocks, and the two are never added up.
Where an engine lends both from one set of blocks they compete: what is free is what neither holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from moescope.analysis.request_footprint import RequestModel
from moescope.schemas.attributes import MemoryPool


@dataclass(frozen=True, slots=True)
class EngineCaches:
    """The caches of one data-parallel engine now; NaN where it has no such cache, or none is known.

    Attributes:
        ranks: EP ranks that share the engine's requests: those of one tensor-parallel group.
        slots, slots_limit: KDA state slots in use, and that exist.
        blocks, blocks_limit: MLA KV cache blocks.
        slot_bytes, block_bytes: bytes of one on each of the ranks, limit in bytes / limit.
        is_shared: whether both are lent from one set of blocks.
    """

    ranks: tuple[int, ...]
    slots: float
    slots_limit: float
    blocks: float
    blocks_limit: float
    slot_bytes: float
    block_bytes: float
    is_shared: bool

    @property
    def free_slots(self) -> float:
        """Slots that nobody holds; NaN where there is no limit."""
        free = self.slots_limit - self.slots
        return max(free - self.blocks, 0.0) if self.is_shared else max(free, 0.0)

    @property
    def free_blocks(self) -> float:
        """Blocks that nobody holds; NaN where there is no limit."""
        free = self.blocks_limit - self.blocks
        return max(free - self.slots, 0.0) if self.is_shared else max(free, 0.0)


@dataclass(frozen=True, slots=True)
class Admission:
    """More requests of one context length on one engine.

    Attributes:
        context_tokens: prompt and output together.
        by_kda: how many fit the free KDA state slots alone; None where the engine has none.
        by_mla: how many fit the free MLA KV cache blocks alone; None where that is not known.
        fits: how many fit; None where neither is known.
        binds: which of the two allows no more; None where neither is known or they are lent as one.
    """

    context_tokens: int
    by_kda: int | None
    by_mla: int | None
    fits: int | None
    binds: MemoryPool | None


def admit(engine: EngineCaches, model: RequestModel, context_tokens: int) -> Admission:
    """Count the requests of a context length that fit an engine beside those that run."""
    blocks = model.blocks_of(context_tokens)
    by_kda = _whole(engine.free_slots / model.slots_per_request)
    by_mla = None if blocks is None else _whole(engine.free_blocks / blocks)
    if engine.is_shared and blocks is not None:
        each = model.slots_per_request + blocks
        fits = _whole(engine.free_blocks / each)
        more_blocks = blocks > model.slots_per_request
        return Admission(
            *(context_tokens, by_kda, by_mla, fits),
            MemoryPool.MLA_KV_CACHE if more_blocks else MemoryPool.KDA_STATE,
        )
    known = [(count, pool) for count, pool in _by_pool(by_kda, by_mla) if count is not None]
    if not known:
        return Admission(context_tokens, by_kda, by_mla, None, None)
    fits, binds = min(known, key=lambda one: one[0])
    return Admission(context_tokens, by_kda, by_mla, fits, binds)


def crossover_tokens(engine: EngineCaches, model: RequestModel) -> float | None:
    """Context from which on the MLA KV cache binds; below it KDA state does.

    Where both are lent from one set of blocks: from which on a request takes more blocks for its MLA KV cache
    than for its KDA state. None where one of the two caches is not known.
    """
    if model.tokens_per_block is None or math.isnan(engine.free_slots) or math.isnan(engine.free_blocks):
        return None
    if engine.is_shared:
        return model.tokens_per_block * model.slots_per_request
    if engine.free_slots <= 0:
        return None
    return model.tokens_per_block * engine.free_blocks * model.slots_per_request / engine.free_slots


@dataclass(frozen=True, slots=True)
class ReplicaCost:
    """One more physical expert in every MoE layer of one rank.

    Attributes:
        rank: which.
        bytes: weights of one expert, of all layers.
        headroom_bytes: memory of the device that no pool reserves; None where it is not known.
        missing_bytes: what the headroom lacks; None without one.
        slots: KDA state slots that so many bytes are, were they taken from there; None without any.
        blocks: MLA KV cache blocks that they are, were they taken from there; None without any.
    """

    rank: int
    bytes: int
    headroom_bytes: int | None
    missing_bytes: int | None
    slots: int | None
    blocks: int | None

    @property
    def fits(self) -> bool | None:
        """Whether the headroom holds it; None where that is not known."""
        return None if self.missing_bytes is None else self.missing_bytes == 0

    def displaced(self, model: RequestModel, context_tokens: int) -> tuple[int | None, int | None]:
        """Requests of a context that fewer slots, or fewer blocks, hold: either, never both."""
        blocks = model.blocks_of(context_tokens)
        return (
            None if self.slots is None else math.ceil(self.slots / model.slots_per_request),
            None if self.blocks is None or blocks is None else math.ceil(self.blocks / blocks),
        )


def price_replica(
    rank: int, replica_bytes: int, headroom_bytes: float, engine: EngineCaches | None
) -> ReplicaCost:
    """Say what one more copy a layer takes from a rank.

    Args:
        rank: which.
        replica_bytes: weights of one expert, of all layers.
        headroom_bytes: memory that no pool reserves; NaN where it is not known.
        engine: the rank's; None where its caches are not known.
    """
    headroom = None if math.isnan(headroom_bytes) else max(int(headroom_bytes), 0)
    missing = None if headroom is None else max(replica_bytes - headroom, 0)
    taken = replica_bytes if missing is None else missing
    sizes = (math.nan, math.nan) if engine is None else (engine.slot_bytes, engine.block_bytes)
    slots, blocks = (math.ceil(taken / size) if size > 0 else None for size in sizes)
    return ReplicaCost(rank, replica_bytes, headroom, missing, slots, blocks)


def _whole(count: float) -> int | None:
    return None if math.isnan(count) else int(count)


def _by_pool(by_kda: int | None, by_mla: int | None) -> tuple[tuple[int | None, MemoryPool], ...]:
    return ((by_kda, MemoryPool.KDA_STATE), (by_mla, MemoryPool.MLA_KV_CACHE))
