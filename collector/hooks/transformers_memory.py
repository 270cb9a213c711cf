"""What a Transformers model's weights take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from moescope.collector.recorder import Meter
from moescope.schemas import metrics
from moescope.schemas.attributes import LAYER, POOL, MemoryPool
from moescope.schemas.topology import ModelShape


def report_weights(meter: Meter, model: Any, experts: Sequence[Any], shape: ModelShape) -> None:
    """Say the bytes of all weights, and of one expert: once for all layers where they agree."""
    weights = bytes_of([*model.parameters(), *model.buffers()])
    meter.set_state(metrics.MEMORY_USAGE, weights, {POOL: MemoryPool.WEIGHTS.value})
    per_layer = [bytes_of(module.parameters()) // shape.num_experts for module in experts]
    if len(set(per_layer)) == 1:
        meter.set_state(metrics.EXPERT_WEIGHT_SIZE, per_layer[0])
        return
    for layer, size in zip(shape.moe_layers, per_layer, strict=True):
        meter.set_state(metrics.EXPERT_WEIGHT_SIZE, size, {LAYER: layer})


def bytes_of(tensors: Iterable[Any]) -> int:
    """Bytes of tensors, each storage once: tied weights share one."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())
