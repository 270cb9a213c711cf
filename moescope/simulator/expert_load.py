"""Which experts a simulated router chooses: lognormal popularity that drifts, and what a scenario plants.

Everything is a function of the seed and of how often the load was advanced: the same run twice gives the same
counts to the token.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from moescope.schemas.attributes import Phase
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import ModelShape

_SIGMA: Final = 0.4
"""Spread of the log popularity. Published rank imbalance of DeepSeek-R1 matches 0.5 to 1; K3 is flatter."""
_DRIFT_SECONDS: Final = 1800.0
"""Time after which popularity has forgotten about two thirds of what it was."""
_LARGEST_SHARE: Final = 0.9
"""Share of the tokens that choose any one expert at most; a token cannot choose one twice."""
_CLUSTERING_CV: Final = 0.1
"""Tokens of one request resemble each other: relative spread that one rank's window adds to each expert."""


class Scenario(StrEnum):
    """What goes wrong."""

    HOT_EXPERT = "hot-expert"


@dataclass(frozen=True, slots=True)
class HotExpert:
    """An expert that is chosen far more often than its peers.

    ``factor`` is its popularity in multiples of an ordinary expert's.
    """

    layer: int
    expert: int
    factor: float


def plant_hot_expert(shape: ModelShape, *, ranks: int) -> HotExpert:
    """Choose the planted expert of ``hot-expert``: layer 40, expert 347 of K3; the middle of smaller models.

    Its load is about 1.4 ranks' worth, so that its rank stands out, as far as top-k allows.
    """
    layer = 40 if 40 in shape.moe_layers else shape.moe_layers[shape.num_moe_layers // 2]
    expert = 347 if shape.num_experts > 347 else shape.num_experts // 2
    return HotExpert(layer, expert, factor=max(1.4 * shape.num_experts / ranks, 8.0))


class SimulatedExpertLoad:
    """The router of a simulated model.

    Args:
        shape: the model.
        seed: decides everything.
        hot_experts: what a scenario planted.
    """

    def __init__(self, shape: ModelShape, seed: int, hot_experts: tuple[HotExpert, ...] = ()) -> None:
        self._shape = shape
        self._seed = seed
        self._hot_experts = hot_experts
        self._rng = np.random.default_rng([seed, 0])
        self._windows = 0
        size = (len(Phase), shape.num_moe_layers, shape.num_experts)
        # Prefill and decode mostly agree on what is popular, and differ in detail.
        common = self._rng.normal(0, _SIGMA, size[1:])
        self._home: FloatArray = common + self._rng.normal(0, _SIGMA / 3, size)
        self._log_popularity = self._home.copy()

    def advance(self, seconds: float) -> None:
        """Let popularity drift: an Ornstein-Uhlenbeck step around where each expert is at home."""
        keep = float(np.exp(-seconds / _DRIFT_SECONDS))
        noise = self._rng.normal(0, _SIGMA / 2 * np.sqrt(1 - keep * keep), self._home.shape)
        self._log_popularity = self._home + keep * (self._log_popularity - self._home) + noise
        self._windows += 1

    def draw(self, rank: int, phase: Phase, tokens: int) -> IntArray:
        """Draw what ``tokens`` token rows of one rank chose: int64 ``[num_moe_layers, num_experts]``.

        Each layer sums to ``tokens · top_k`` exactly.
        """
        index = list(Phase).index(phase)
        rng = np.random.default_rng([self._seed, 1, self._windows, rank, index])
        shape_of_noise = 1 / _CLUSTERING_CV**2
        weights = self._weights(index)
        weights *= rng.gamma(shape_of_noise, 1 / shape_of_noise, weights.shape)
        probabilities = _capped(
            weights / weights.sum(axis=1, keepdims=True), _LARGEST_SHARE / self._shape.top_k
        )
        counts: IntArray = rng.multinomial(tokens * self._shape.top_k, probabilities).astype(np.int64)
        return counts

    def _weights(self, phase_index: int) -> FloatArray:
        weights: FloatArray = np.exp(self._log_popularity[phase_index])
        for hot in self._hot_experts:
            weights[self._shape.moe_layers.index(hot.layer), hot.expert] = hot.factor
        return weights


def _capped(probabilities: FloatArray, cap: float) -> FloatArray:
    """Cut what lies above ``cap`` and give it to the other experts of the layer."""
    is_capped = probabilities > cap
    kept = np.where(is_capped, 0.0, probabilities)
    rest = 1.0 - cap * is_capped.sum(axis=1, keepdims=True)
    capped: FloatArray = np.where(is_capped, cap, kept * rest / kept.sum(axis=1, keepdims=True))
    return capped
