"""How long a forward pass takes: the sum over layers of the slowest rank that any token needs.

Expert parallelism runs all ranks of a group in lock step, layer by layer: the dispatch waits for the rank
whose attention is late, the combine for the rank whose experts are. A rank's time in a layer is what reading
its touched experts from memory takes, plus the arithmetic of the assignments that reach it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.schemas.records import FloatArray
from moescope.schemas.topology import ModelShape
from moescope.simulator.serving import Device, ServingFacts

_MESSAGE_SECONDS: Final = 20e-6
"""Latency of one all-to-all without bytes (estimated)."""
_DENSE_SECONDS: Final = 40e-6
"""Attention, norms and launches of a layer without bytes (estimated)."""
_DENSE_PARAMETERS_PER_BYTE: Final = 0.5


@dataclass(frozen=True, slots=True)
class StepTime:
    """One forward pass, in seconds.

    Attributes:
        total: all layers.
        experts: float64 ``[num_moe_layers, ep_size]``: each rank's grouped expert kernel.
        dense: float64 ``[ep_size]``: each rank's attention and whatever else is no expert, per layer.
        exchange: one dispatch or one combine, waiting left out.
    """

    total: float
    experts: FloatArray
    dense: FloatArray
    exchange: float

    def dispatch_seconds(self) -> FloatArray:
        """Dispatch of each rank and layer with its waiting: float64 ``[ep_size, num_moe_layers]``."""
        waited = self.dense.max() - self.dense
        return np.tile((self.exchange + waited)[:, None], (1, len(self.experts)))

    def combine_seconds(self) -> FloatArray:
        """Combine of each rank and layer with its waiting: float64 ``[ep_size, num_moe_layers]``."""
        late = self.experts.max(axis=1, keepdims=True) - self.experts
        seconds: FloatArray = self.exchange + late.T
        return seconds


@dataclass(frozen=True, slots=True)
class StepModel:
    """Times forward passes of one EP group.

    Attributes:
        shape: the model.
        facts: its bytes.
        device: under each rank.
        slots: physical experts of a rank and layer.
        tensor_parallel: ranks that share a token's attention.
    """

    shape: ModelShape
    facts: ServingFacts
    device: Device
    slots: int
    tensor_parallel: int

    def time(
        self,
        share: FloatArray,
        reach: FloatArray,
        *,
        tokens: float,
        tokens_per_engine: float,
        slowness: FloatArray,
    ) -> StepTime:
        """Time one pass.

        Args:
            share: float64 ``[num_moe_layers, ep_size]``: assignments that one token brings to each rank.
            reach: the same shape: chance that one token needs the rank at all.
            tokens: of the whole group.
            tokens_per_engine: of one data-parallel engine.
            slowness: float64 ``[ep_size]``: multiples of an ordinary rank's time.
        """
        facts, device = self.facts, self.device
        assignments = share * tokens
        touched = self.slots * -np.expm1(-assignments / self.slots)
        reading = touched * facts.expert_bytes / device.bytes_per_second
        computing = assignments * 2 * facts.expert_parameters / device.operations_per_second
        is_needed = -np.expm1(tokens * np.log1p(-np.minimum(reach, 1 - 1e-12)))
        experts = (reading + computing) * slowness
        dense = self._dense(tokens_per_engine) * slowness
        copies = tokens_per_engine * float(reach.sum(axis=1).mean()) / self.tensor_parallel
        exchange = _MESSAGE_SECONDS + copies * facts.dispatch_bytes / device.link_bytes_per_second
        slowest = (experts * is_needed).max(axis=1)
        dense_layers = self.shape.num_layers - self.shape.num_moe_layers
        total = float(slowest.sum()) + self.shape.num_moe_layers * (float(dense.max()) + 2 * exchange)
        return StepTime(total + dense_layers * float(dense.max()), experts, dense, exchange)

    def _dense(self, tokens_per_engine: float) -> float:
        """Seconds of one layer's attention and shared parts on an ordinary rank."""
        per_layer = self.facts.other_bytes / self.shape.num_layers / self.tensor_parallel
        reading = per_layer / self.device.bytes_per_second
        operations = 2 * per_layer * _DENSE_PARAMETERS_PER_BYTE * tokens_per_engine
        return _DENSE_SECONDS + reading + operations / self.device.operations_per_second
