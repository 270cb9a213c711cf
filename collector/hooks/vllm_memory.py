"""What a vLLM worker's memory is used for: weights, their extra copies, expert transfers, everything else.

Caches are the scheduler's to report. The pools do not overlap: extra copies of experts are not in
``weights``, and what expert transfers use is in neither. On the CPU only what the weights take is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from moescope.collector.recorder import Meter
from moescope.schemas import metrics
from moescope.schemas.attributes import LAYER, POOL, MemoryPool

# Of every expert at once, not of one; as vLLM's own list for moving experts has them.
_SHARED_BY_EXPERTS: Final = {
    "e_score_correction_bias",
    "w13_input_scale",
    "w2_input_scale",
    "hash_indices_table",
}


def report_memory(meter: Meter, worker: Any, model: Any, layers: Sequence[Any], eplb: Any | None) -> None:
    """Say what is known once the worker is ready; it stays so.

    Args:
        meter: where it is said.
        worker: vLLM's worker, after its profiling.
        model: what it serves.
        layers: the model's modules that route.
        eplb: the expert load balancer's state of this model, if it is on.
    """
    expert_bytes = {int(layer.layer_id): weight_bytes_of(layer) for layer in layers if has_experts(layer)}
    for pool, used in pools_of(worker, model, layers, eplb).items():
        meter.set_state(metrics.MEMORY_USAGE, used, {POOL: pool.value})
    if len(expert_bytes) == len(layers) and len(set(expert_bytes.values())) == 1:
        meter.set_state(metrics.EXPERT_WEIGHT_SIZE, next(iter(expert_bytes.values())))
        return
    for number, size in expert_bytes.items():
        meter.set_state(metrics.EXPERT_WEIGHT_SIZE, size, {LAYER: number})


def pools_of(worker: Any, model: Any, layers: Sequence[Any], eplb: Any | None) -> dict[MemoryPool, int]:
    """Bytes by pool, of those that are known."""
    loaded = int(getattr(worker.model_runner, "model_memory_usage", 0)) or _bytes_of(model.parameters())
    replicas = sum(replica_bytes_of(layer) for layer in layers if has_experts(layer))
    pools = {MemoryPool.WEIGHTS: loaded - replicas}
    if replicas:
        pools[MemoryPool.REPLICATION] = replicas
    transfer = _bytes_of(getattr(eplb, "expert_buffer", None) or ())
    if transfer:
        pools[MemoryPool.TRANSFER] = transfer
    consumed = getattr(worker, "total_consumed", None)
    activation = getattr(worker, "peak_activation_memory", None)
    if consumed is not None and activation is not None:
        pools[MemoryPool.RUNTIME] = max(int(consumed) + int(activation) - loaded - transfer, 0)
    return pools


def has_experts(layer: Any) -> bool:
    """Whether the layer says which weights are its experts'."""
    return getattr(getattr(layer, "routed_experts", None), "local_num_experts", 0) > 0


def weight_bytes_of(layer: Any) -> int:
    """Bytes of one physical expert's weights, scales and biases."""
    return _expert_bytes(layer) // int(layer.routed_experts.local_num_experts)


def replica_bytes_of(layer: Any) -> int:
    """This rank's part of the bytes of redundant experts; which of its experts are redundant is nobody's."""
    physical, logical = int(layer.moe_config.num_experts), int(layer.moe_config.num_logical_experts)
    return _expert_bytes(layer) * (physical - logical) // physical


def _expert_bytes(layer: Any) -> int:
    experts = layer.routed_experts
    return _bytes_of(
        weight
        for name, weight in experts.named_parameters()
        if name not in _SHARED_BY_EXPERTS and weight.ndim and len(weight) == experts.local_num_experts
    )


def _bytes_of(tensors: Iterable[Any]) -> int:
    """Bytes of storage, each once however many tensors view it."""
    storages = {s.data_ptr(): s.nbytes() for s in (tensor.untyped_storage() for tensor in tensors)}
    return int(sum(storages.values()))
