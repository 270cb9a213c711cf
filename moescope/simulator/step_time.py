"""How long a forward pass of each engine takes: in every layer it waits for the slowest rank its tokens need.

A rank's time in a layer is its attention, then its experts: reading the touched ones from memory and the
arithmetic of the assignments that reach it. A data-parallel engine's pass waits in a layer only for the
ranks that hold an expert one of its own tokens chose: for a rank that a token reaches with the chance q, and
a batch of n tokens, with the chance 1 − (1 − q)^n in each layer.
A slow rank therefore delays its own engine, whose attention it computes, and of the others those passes whose
tokens are routed to it. A pass of one token may do without the rank in most layers; a prefill chunk, or a
decode batch of a model with many active experts, needs every rank in every layer.

Two things are left out. Ranks compute the tokens of each peer as they arrive, and engines start their passes
when they like. Where an engine's kernels wait for all peers, or its scheduler starts all passes of a group
together, the group runs in lock step and every pass lasts as long as the slowest.
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
        engines: float64 ``[engines]``: all layers of each engine's pass, on average.
        experts: float64 ``[num_moe_layers, ep_size]``: each rank's grouped expert kernel.
        dense: float64 ``[ep_size]``: each rank's attention and whatever else is no expert, per layer.
        exchange: one dispatch or one combine, waiting left out.
        needs: float64 ``[engines, num_moe_layers, ep_size]``: chance that an engine's tokens need a rank.
        results: float64 ``[engines, num_moe_layers]``: from the start of a layer to the last expert that the
            engine's tokens need, on average and without exchanges.
    """

    engines: FloatArray
    experts: FloatArray
    dense: FloatArray
    exchange: float
    needs: FloatArray
    results: FloatArray

    @property
    def tensor_parallel(self) -> int:
        """Ranks of an engine."""
        return len(self.dense) // len(self.engines)

    def dispatch_seconds(self) -> FloatArray:
        """Dispatch of each rank and layer with its waiting: float64 ``[ep_size, num_moe_layers]``."""
        return self.exchange + self._waits_for_tokens()

    def combine_seconds(self) -> FloatArray:
        """Combine of each rank and layer with its waiting: float64 ``[ep_size, num_moe_layers]``."""
        last = np.repeat(self.results, self.tensor_parallel, axis=0)
        ready = self.dense[:, None] + self._waits_for_tokens() + self.experts.T
        seconds: FloatArray = self.exchange + np.maximum(last - ready, 0)
        return seconds

    def _waits_for_tokens(self) -> FloatArray:
        """How long each rank waits for the latest tokens that are routed to it."""
        dense = self.dense.reshape(len(self.engines), -1).max(axis=1)
        late = np.maximum(dense[:, None] - self.dense, 0)
        waits: FloatArray = (self.needs * late[:, None, :]).max(axis=0).T
        return waits


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
        tokens_per_engine: FloatArray,
        slowness: FloatArray,
    ) -> StepTime:
        """Time one pass of every engine.

        Args:
            share: float64 ``[num_moe_layers, ep_size]``: assignments that one token brings to each rank.
            reach: the same shape: chance that one token needs the rank at all.
            tokens: of the whole group.
            tokens_per_engine: float64 ``[engines]``: of each data-parallel engine; graphs are padded to their
                mean, as far as time goes.
            slowness: float64 ``[ep_size]``: multiples of an ordinary rank's time.
        """
        facts, device = self.facts, self.device
        assignments = share * tokens
        touched = self.slots * -np.expm1(-assignments / self.slots)
        reading = touched * facts.expert_bytes / device.bytes_per_second
        computing = assignments * 2 * facts.expert_parameters / device.operations_per_second
        experts = (reading + computing) * slowness
        usual = float(tokens_per_engine.mean())
        dense = self._dense(usual) * slowness
        copies = usual * float(reach.sum(axis=1).mean()) / self.tensor_parallel
        exchange = _MESSAGE_SECONDS + copies * facts.dispatch_bytes / device.link_bytes_per_second
        needs = chance_of_need(reach, tokens_per_engine)
        own = dense.reshape(len(needs), -1).max(axis=1)
        late = np.maximum(dense - own[:, None], 0)[:, None, :] + experts
        results = own[:, None] + expected_largest(late, needs)
        dense_layers = self.shape.num_layers - self.shape.num_moe_layers
        engines = results.sum(axis=1) + self.shape.num_moe_layers * 2 * exchange + dense_layers * own
        return StepTime(engines, experts, dense, exchange, needs, results)

    def _dense(self, tokens_per_engine: float) -> float:
        """Seconds of one layer's attention and shared parts on an ordinary rank."""
        per_layer = self.facts.other_bytes / self.shape.num_layers / self.tensor_parallel
        reading = per_layer / self.device.bytes_per_second
        operations = 2 * per_layer * _DENSE_PARAMETERS_PER_BYTE * tokens_per_engine
        return _DENSE_SECONDS + reading + operations / self.device.operations_per_second


def chance_of_need(reach: FloatArray, tokens_per_engine: FloatArray) -> FloatArray:
    """Chance that any of an engine's tokens needs a rank: float64 ``[engines, num_moe_layers, ep_size]``."""
    none = np.log1p(-np.minimum(reach, 1 - 1e-12))
    needs: FloatArray = -np.expm1(tokens_per_engine[:, None, None] * none)
    return needs


def expected_largest(values: FloatArray, chances: FloatArray) -> FloatArray:
    """Mean of the largest value that is there; 0 where none is.

    Args:
        values: float64 ``[…, n]``, not negative.
        chances: the same shape: of each value to be there, whatever the others are.

    Returns:
        float64 ``[…]``.
    """
    order = np.argsort(-values, axis=-1)
    largest_first, there = np.take_along_axis(values, order, -1), np.take_along_axis(chances, order, -1)
    absent = np.cumprod(1 - there, axis=-1)
    none_larger = np.concatenate([np.ones_like(absent[..., :1]), absent[..., :-1]], axis=-1)
    mean: FloatArray = (largest_first * there * none_larger).sum(axis=-1)
    return mean
