"""The six envelopes of a rank's memory, how large each may be, and what fills them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moescope.schemas.attributes import MemoryPool
from moescope.schemas.topology import ModelShape
from moescope.simulator.serving import MLA_BLOCK_TOKENS, Device, ServingFacts

_RUNTIME_SHARE: Final = 0.06
_TRANSFER_SHARE: Final = 0.02
_UNUSED_SHARE: Final = 0.04
_KDA_SHARE: Final = 0.5
"""Of what is left for caches, where a model has KDA state."""
_RUNTIME_IDLE: Final = 0.7


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """How one rank's device is divided; bytes.

    Attributes:
        limits: of each pool.
        slot_bytes: one KDA state slot on this rank.
        block_bytes: one KV cache block on this rank.
        kda_slots: that exist; 0 where the model has none.
        mla_blocks: that exist.
    """

    limits: dict[MemoryPool, int]
    slot_bytes: int
    block_bytes: int
    kda_slots: int
    mla_blocks: int

    def used(self, slots: int, blocks: int, *, busy: float, traffic: float) -> dict[MemoryPool, int]:
        """Bytes in use.

        Args:
            slots: KDA state slots in use.
            blocks: KV cache blocks in use.
            busy: share of the window that the rank computed.
            traffic: share of the transfer buffers in use.
        """
        runtime = self.limits[MemoryPool.RUNTIME]
        used = {
            MemoryPool.WEIGHTS: self.limits[MemoryPool.WEIGHTS],
            MemoryPool.RUNTIME: round(runtime * (_RUNTIME_IDLE + (1 - _RUNTIME_IDLE) * busy)),
            MemoryPool.KDA_STATE: slots * self.slot_bytes,
            MemoryPool.MLA_KV_CACHE: blocks * self.block_bytes,
            MemoryPool.REPLICATION: self.limits[MemoryPool.REPLICATION],
            MemoryPool.TRANSFER: round(self.limits[MemoryPool.TRANSFER] * min(traffic, 1.0)),
        }
        return {pool: used[pool] for pool in self.limits}


def plan_memory(
    shape: ModelShape,
    facts: ServingFacts,
    device: Device,
    *,
    slots: int,
    redundant_slots: int,
    tensor_parallel: int,
) -> MemoryPlan:
    """Divide the device of a rank with ``slots`` physical experts a layer, some of them redundant."""
    layer_bytes = shape.num_moe_layers * facts.expert_bytes
    memory = device.memory_bytes
    limits = {
        MemoryPool.WEIGHTS: (slots - redundant_slots) * layer_bytes + facts.other_bytes // tensor_parallel,
        MemoryPool.RUNTIME: round(_RUNTIME_SHARE * memory),
        MemoryPool.REPLICATION: redundant_slots * layer_bytes,
        MemoryPool.TRANSFER: round(_TRANSFER_SHARE * memory),
    }
    left = round((1 - _UNUSED_SHARE) * memory) - sum(limits.values())
    slot_bytes = facts.kda_state_bytes // tensor_parallel
    block_bytes = MLA_BLOCK_TOKENS * facts.kv_bytes_per_token
    if facts.is_kv_sharded:
        block_bytes //= tensor_parallel
    kda_slots = int(_KDA_SHARE * left) // slot_bytes if slot_bytes else 0
    if kda_slots:
        limits[MemoryPool.KDA_STATE] = kda_slots * slot_bytes
    mla_blocks = (left - kda_slots * slot_bytes) // block_bytes
    limits[MemoryPool.MLA_KV_CACHE] = mla_blocks * block_bytes
    return MemoryPlan(limits, slot_bytes, block_bytes, kda_slots, mla_blocks)
