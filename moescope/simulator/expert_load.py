"""Which experts a simulated router chooses: lognormal popularity that drifts, topics, and what is planted.

Everything is a function of the seed and of how often the load was advanced: the same run twice gives the same
counts to the token.

A token chooses its ``top_k`` experts one after the other without putting one back (Gumbel top-k). The chance
that an expert is among them is, to first order, ``1 − exp(−w·t)`` with the t that makes the chances of a
layer add up to ``top_k`` (Rosén 1972, successive sampling). :func:`draw_counts` draws what a whole window of
tokens chose from these chances: cheaply, and with every layer adding up exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from moescope.schemas.attributes import Phase
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import ModelShape

_SIGMA_HOME: Final = 0.35
"""Spread of the log popularity that an expert always has. With topics and drift 0.4 to 0.45: published rank
imbalance of DeepSeek-R1 matches 0.5 to 1; none is published for K3, and balanced routers are flatter."""
_SIGMA_PHASE: Final = 0.13
"""Prefill and decode mostly agree on what is popular, and differ in detail."""
_SIGMA_DRIFT: Final = 0.15
_DRIFT_SECONDS: Final = 1800.0
"""Time after which popularity has forgotten about two thirds of what it was."""
_TOPICS: Final = 4
_SIGMA_TOPIC: Final = 0.4
_SIGMA_SHIFTED_TOPIC: Final = 1.0
"""The topic that ``topic-shift`` brings is narrower than the everyday ones."""
_SHIFTED_SHARE: Final = 0.85
_CLUSTERING_CV: Final = 0.35
"""Tokens of one request resemble each other: relative spread of an expert's popularity between requests. With
the request lengths below, counts vary 1.6 to 5 times as much as those of independent tokens, as in traces."""
_TOKENS_PER_REQUEST: Final = {Phase.PREFILL: 1500, Phase.DECODE: 250}
_LARGEST_SPREAD: Final = 0.6

_FloatArray32 = npt.NDArray[np.float32]


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
    """The router of a simulated model, seen by one EP group.

    Args:
        shape: the model.
        seed: decides everything.
        hot_experts: what a scenario planted, while :attr:`is_hot`.
        group: ordinal of the EP group; groups share the model and differ in their topics of the hour.
    """

    def __init__(
        self, shape: ModelShape, seed: int, hot_experts: tuple[HotExpert, ...] = (), *, group: int = 0
    ) -> None:
        self.is_hot = True
        self.is_shifted = False
        self._shape = shape
        self._seed = seed
        self._group = group
        self._hot_experts = hot_experts
        self._rng = np.random.default_rng([seed, 0, group])
        self._windows = 0
        model = np.random.default_rng([seed, 0])
        size = (len(Phase), shape.num_moe_layers, shape.num_experts)
        self._home: FloatArray = model.normal(0, _SIGMA_HOME, size[1:]) + model.normal(0, _SIGMA_PHASE, size)
        self._topics: FloatArray = model.normal(0, _SIGMA_TOPIC, (_TOPICS + 1, *size[1:]))
        self._topics[_TOPICS] *= _SIGMA_SHIFTED_TOPIC / _SIGMA_TOPIC
        self._drift: FloatArray = self._rng.normal(0, _SIGMA_DRIFT, size[1:])
        self._topic_level: FloatArray = self._rng.normal(0, 1, _TOPICS)
        self._is_available = np.ones(size[1:], dtype=np.bool_)
        self._chances: dict[Phase, FloatArray] = {}

    def advance(self, seconds: float) -> None:
        """Let popularity and topics drift: one Ornstein-Uhlenbeck step."""
        keep = float(np.exp(-seconds / _DRIFT_SECONDS))
        fresh = np.sqrt(1 - keep * keep)
        self._drift = keep * self._drift + self._rng.normal(0, _SIGMA_DRIFT * fresh, self._drift.shape)
        self._topic_level = keep * self._topic_level + self._rng.normal(0, fresh, _TOPICS)
        self._windows += 1
        self._chances = {}

    def set_available(self, is_available: npt.NDArray[np.bool_]) -> None:
        """Say which experts have a copy that answers: bool ``[num_moe_layers, num_experts]``."""
        self._is_available = is_available
        self._chances = {}

    def chances(self, phase: Phase) -> FloatArray:
        """Chance that a token chooses each expert: float64 ``[num_moe_layers, num_experts]``, not to change.

        Each layer adds up to ``top_k``.
        """
        if phase not in self._chances:
            weights = self._weights(list(Phase).index(phase))
            self._chances[phase] = inclusion_chances(weights, self._shape.top_k)
        return self._chances[phase]

    def draw(self, rank: int, phase: Phase, tokens: int) -> IntArray:
        """Draw what ``tokens`` token rows of one rank chose: int64 ``[num_moe_layers, num_experts]``.

        Each layer sums to ``tokens · top_k`` exactly, and no expert has more than ``tokens``.
        """
        rng = np.random.default_rng(
            [self._seed, 1, self._group, self._windows, rank, list(Phase).index(phase)]
        )
        clustered = _CLUSTERING_CV**2 * min(_TOKENS_PER_REQUEST[phase], tokens)
        return draw_counts(rng, self.chances(phase), tokens, self._shape.top_k, clustered=clustered)

    def _weights(self, phase_index: int) -> FloatArray:
        share = np.exp(self._topic_level)
        share /= share.sum()
        shifted = _SHIFTED_SHARE if self.is_shifted else 0.0
        mix = np.append(share * (1 - shifted), shifted)
        log_popularity = self._home[phase_index] + self._drift + np.tensordot(mix, self._topics, 1)
        weights: FloatArray = np.exp(log_popularity)
        for hot in self._hot_experts if self.is_hot else ():
            weights[self._shape.moe_layers.index(hot.layer), hot.expert] = hot.factor
        return np.where(self._is_available, weights, 0.0)


def inclusion_chances(weights: FloatArray, top_k: int) -> FloatArray:
    """Chance of each expert to be one of the ``top_k`` that a token draws without putting one back.

    Args:
        weights: float64 ``[layers, experts]``, not negative; more than ``top_k`` of a layer are positive.
        top_k: experts per token.

    Returns:
        float64 ``[layers, experts]``; each layer adds up to ``top_k``.
    """
    shares = weights / weights.sum(axis=1, keepdims=True)
    time = np.full((len(weights), 1), float(top_k))
    for _ in range(60):  # Newton's method from below on a concave function: it never overshoots
        left = np.exp(-shares * time)
        missing = top_k - (1 - left).sum(axis=1, keepdims=True)
        time += missing / (shares * left).sum(axis=1, keepdims=True)
        if missing.max() < 1e-10 * top_k:
            break
    chances: FloatArray = -np.expm1(-shares * time)
    return chances


def draw_counts(
    rng: np.random.Generator, chances: FloatArray, tokens: int, top_k: int, *, clustered: float = 0.0
) -> IntArray:
    """Draw how many of ``tokens`` tokens chose each expert.

    A count is right in mean and variance: ``tokens · p · (1 − p) · (1 + clustered · p)``. It comes from a
    gamma distribution (Wilson and Hilferty's cube of a normal one), scaled so that the layer adds up, and
    made whole by systematic sampling with one random start per layer, which keeps the mean and the sum.
    Correlations between experts are only those that the fixed sum makes.

    Args:
        rng: where chance comes from.
        chances: float64 ``[layers, experts]``, each layer adding up to ``top_k``.
        tokens: token rows.
        top_k: experts per token.
        clustered: how much the variance grows with an expert's chance; 0 for independent tokens.

    Returns:
        int64 ``[layers, experts]``, caller-owned; each layer sums to ``tokens · top_k``, no count is larger
        than ``tokens``.
    """
    if tokens == 0:
        return np.zeros(chances.shape, dtype=np.int64)
    chance: _FloatArray32 = chances.astype(np.float32)
    mean = chance * np.float32(tokens)
    # Rounding brings a variance of its own, all of it where the mean is far below one.
    variance = mean * (1 - chance) * (1 + np.float32(clustered) * chance) - np.minimum(mean, 1 / 6)
    spread = np.sqrt(np.maximum(variance, 0)) / np.maximum(3 * mean, np.float32(1e-9))
    np.minimum(spread, np.float32(_LARGEST_SPREAD), out=spread)
    values = rng.standard_normal(chance.shape, dtype=np.float32)
    values *= spread
    values += 1 - spread * spread
    np.maximum(values, 0, out=values)
    values *= values * values
    values *= mean
    total = tokens * top_k
    edges = np.cumsum(values, axis=1, dtype=np.float64)
    scale = total / edges[:, -1:]
    over = np.flatnonzero((values * scale).max(axis=1) > tokens)
    if len(over):
        exact = values.astype(np.float64) * scale
        exact[over] = _capped(exact[over], float(tokens))
        edges, scale = np.cumsum(exact, axis=1), np.ones_like(scale)
    edges *= scale
    edges += rng.uniform(1e-3, 1 - 1e-3, (len(edges), 1))
    whole = np.floor(edges).astype(np.int64)
    whole[:, -1] = total
    counts = np.diff(whole, axis=1, prepend=0)
    return _whole_below(counts, tokens) if counts.max() > tokens else counts


def _capped(values: FloatArray, cap: float) -> FloatArray:
    """Cut what lies above ``cap`` and give it to the other experts of the layer, until nothing does."""
    while (values > cap).any():
        is_full = values >= cap
        others = np.where(is_full, 0.0, values)
        rest = values.sum(axis=1, keepdims=True) - cap * is_full.sum(axis=1, keepdims=True)
        sums = others.sum(axis=1, keepdims=True)
        # Where the others have nothing to grow from, they share alike.
        others = np.where(sums > 0, others, ~is_full)
        sums = others.sum(axis=1, keepdims=True)
        values = np.where(is_full, cap, others * (rest / np.maximum(sums, 1e-300)))
    return values


def _whole_below(counts: IntArray, tokens: int) -> IntArray:
    """Give what rounding put above ``tokens`` to the least chosen experts of the layer."""
    for row in np.flatnonzero((counts > tokens).any(axis=1)):
        surplus = int(np.maximum(counts[row] - tokens, 0).sum())
        np.minimum(counts[row], tokens, out=counts[row])
        while surplus:
            lowest = int(counts[row].argmin())
            given = min(surplus, tokens - int(counts[row, lowest]))
            counts[row, lowest] += given
            surplus -= given
    return counts
