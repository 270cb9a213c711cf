"""What an SGLang rank's memory is used for, and its two kinds of cache: KDA state and KV.

The weights are the rank's own to tell. How much of its caches is in use only the scheduler knows, which lives
in the same process; it tells with every batch that it logs. Linear-attention state of any kind (KDA, Mamba,
GDN) counts as KDA state, KV of full attention as MLA KV cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from moescope.collector.recorder import Meter
from moescope.schemas import metrics
from moescope.schemas.attributes import LAYER, POOL, REASON, CopyReason, MemoryPool

_GIB: Final = 1 << 30


class Pools:
    """The memory of one rank.

    Args:
        runner: SGLang's model runner once its model is loaded; None while there is none.
        experts: the model's modules that hold routed experts.
        redundant_share: part of the physical experts that are redundant.
    """

    def __init__(self, runner: Any = None, experts: Sequence[Any] = (), redundant_share: float = 0.0) -> None:
        self._runner = runner
        self._bytes_per_layer = {int(module.layer_id): _bytes_of_expert(module) for module in experts}
        all_experts = sum(_bytes_of_experts(module) for module in experts)
        self._redundant = round(all_experts * redundant_share)
        self._kv_tokens_used: int | None = None
        self._state_slots_used: int | None = None

    def take(self, stats: Any) -> None:
        """Take what the scheduler logs: SGLang's ``SchedulerStats``; None once it tells nothing more."""
        self._kv_tokens_used = None if stats is None else int(stats.kv_used_tokens)
        self._state_slots_used = None if stats is None else int(stats.mamba_used_tokens)

    def report(self, meter: Meter) -> None:
        """Say what is known; called before each window is closed."""
        if self._runner is None:
            return
        self._report_weights(meter)
        self._report_kv(meter)
        self._report_state(meter)

    def _report_weights(self, meter: Meter) -> None:
        # Measured by SGLang: what loading the model took of the device.
        loaded = round(float(getattr(self._runner, "weight_load_mem_usage", 0.0)) * _GIB)
        if loaded > 0:
            _use(meter, MemoryPool.WEIGHTS, max(loaded - self._redundant, 0))
        if self._redundant:
            _use(meter, MemoryPool.REPLICATION, self._redundant)
        graphs = getattr(self._runner, "graph_memory_usage", None) or {}
        if graphs:
            _use(meter, MemoryPool.RUNTIME, round(sum(graphs.values()) * _GIB))
        sizes = set(self._bytes_per_layer.values())
        if len(sizes) == 1:
            meter.set_state(metrics.EXPERT_WEIGHT_SIZE, sizes.pop())
            return
        for layer, size in self._bytes_per_layer.items():
            meter.set_state(metrics.EXPERT_WEIGHT_SIZE, size, {LAYER: layer})

    def _report_kv(self, meter: Meter) -> None:
        pool: Any = getattr(self._runner, "token_to_kv_pool", None)
        tokens = int(getattr(pool, "size", 0) or 0)
        if not tokens:
            return
        limit = round(float(pool.mem_usage) * _GIB)
        page = int(getattr(pool, "page_size", 1) or 1)
        _limit(meter, MemoryPool.MLA_KV_CACHE, limit)
        meter.set_state(metrics.MLA_KV_CACHE_BLOCKS_LIMIT, tokens // page)
        used = self._kv_tokens_used
        if used is None:
            _forget_use(meter, MemoryPool.MLA_KV_CACHE, metrics.MLA_KV_CACHE_BLOCKS)
        else:
            _use(meter, MemoryPool.MLA_KV_CACHE, limit * used // tokens)
            meter.set_state(metrics.MLA_KV_CACHE_BLOCKS, -(-used // page))

    def _report_state(self, meter: Meter) -> None:
        requests = getattr(self._runner, "req_to_token_pool", None)
        pool: Any = getattr(requests, "mamba_pool", None)
        slots = int(getattr(pool, "size", 0) or 0)
        if not slots:
            return
        limit = round(float(pool.mem_usage) * _GIB)
        _limit(meter, MemoryPool.KDA_STATE, limit)
        meter.set_state(metrics.KDA_STATE_SLOTS_LIMIT, slots)
        used = self._state_slots_used
        if used is None:
            _forget_use(meter, MemoryPool.KDA_STATE, metrics.KDA_STATE_SLOTS)
        else:
            _use(meter, MemoryPool.KDA_STATE, limit * used // slots)
            meter.set_state(metrics.KDA_STATE_SLOTS, used)


def count_state_copies(meter: Meter, batch: Any) -> None:
    """Count the state slots that a prefill copies: from a shared prefix, and to where a prefix may be shared.

    Checkpoints of a decode pass are chosen on the device; nobody on the host knows their number.
    """
    shared = getattr(batch, "mamba_cow_src_indices", None)
    if shared is not None and len(shared):
        meter.add(metrics.KDA_STATE_COPIES, len(shared), {REASON: CopyReason.COPY_ON_WRITE.value})
    kept = sum(getattr(batch, "mamba_prefill_track_mask_cpu", None) or ())
    if kept:
        meter.add(metrics.KDA_STATE_COPIES, int(kept), {REASON: CopyReason.CHECKPOINT.value})


def _use(meter: Meter, pool: MemoryPool, used: int) -> None:
    meter.set_state(metrics.MEMORY_USAGE, used, {POOL: pool.value})


def _forget_use(meter: Meter, pool: MemoryPool, count: metrics.Metric) -> None:
    meter.forget_state(metrics.MEMORY_USAGE, {POOL: pool.value})
    meter.forget_state(count)


def _limit(meter: Meter, pool: MemoryPool, limit: int) -> None:
    meter.set_state(metrics.MEMORY_LIMIT, limit, {POOL: pool.value})


def _bytes_of_expert(module: Any) -> int:
    """Bytes of one physical expert's weights, scales and biases."""
    return _bytes_of_experts(module) // int(module.num_local_experts)


def _bytes_of_experts(module: Any) -> int:
    """Bytes that a layer's experts take on this rank."""
    held = int(module.num_local_experts)
    weights = [weight for weight in module.parameters() if weight.ndim > 1 and len(weight) == held]
    storages = {w.untyped_storage().data_ptr(): w.untyped_storage().nbytes() for w in weights}
    return sum(storages.values())
