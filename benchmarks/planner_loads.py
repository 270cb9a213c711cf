"""Loads that planners are compared on: as routers spread them, and the odd ones that break a planner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

SPREADS = (
    ("lognormal", 0.25),
    ("lognormal", 0.5),
    ("lognormal", 1.0),
    ("zipf", 0.6),
    ("zipf", 0.8),
    ("zipf", 1.0),
    ("zipf", 1.2),
)
TOKENS_PER_EXPERT = 20_000
FUZZED_SHAPES = (
    *((4, 2, 0), (4, 2, 2), (5, 5, 5), (6, 3, 3), (8, 4, 0), (8, 4, 4), (8, 4, 8), (8, 8, 8), (12, 4, 4)),
    *((16, 4, 0), (16, 8, 8), (24, 6, 12), (32, 8, 16), (60, 4, 4), (64, 8, 8), (64, 16, 16), (128, 16, 32)),
    (256, 32, 32),
)
"""Experts, ranks, redundant experts."""


def spread_load(kind: str, parameter: float, layers: int, experts: int, seed: int = 13) -> Any:
    """Tokens int64 ``[layers, experts]`` whose rates spread lognormally (σ) or by Zipf's law (exponent)."""
    random = np.random.default_rng(seed)
    if kind == "lognormal":
        rate = random.lognormal(0.0, parameter, (layers, experts))
    else:
        rate = random.permuted(np.tile(np.arange(1, experts + 1) ** -parameter, (layers, 1)), axis=1)
    return np.rint(rate / rate.sum(axis=1, keepdims=True) * TOKENS_PER_EXPERT * experts).astype(np.int64)


def fuzzed_loads(layers: int, experts: int, ranks: int, seed: int) -> Iterator[tuple[str, Any]]:
    """Names and tokens int64 ``[layers, experts]`` of loads with ties, zeros, giants and no spread at all."""
    random = np.random.default_rng(seed)
    shape = (layers, experts)
    yield "small numbers with ties", random.integers(0, 5, shape)
    yield "one token an expert", random.poisson(1.0, shape)
    yield "twenty tokens an expert", random.poisson(20.0, shape)
    yield "half of them idle", random.poisson(300.0, shape) * random.integers(0, 2, shape)
    yield "one expert takes all", np.eye(experts, dtype=np.int64)[random.integers(0, experts, layers)] * 997
    yield "all alike", np.full(shape, 23)
    yield "none at all", np.zeros(shape, dtype=np.int64)
    yield "powers of two", 2 ** random.integers(0, 12, shape)
    yield "heavy tail", np.rint(random.lognormal(8, 2, shape)).astype(np.int64)
    yield "mild spread", np.rint(random.lognormal(8, 0.3, shape)).astype(np.int64)
    yield "linear", random.permuted(np.tile(np.arange(experts) * 79, (layers, 1)), axis=1)
    giants = random.poisson(20.0, shape)
    giants[:, : min(ranks + 1, experts)] = 10_000
    yield "one equal giant more than ranks", random.permuted(giants, axis=1)
    two = np.where(random.random(shape) < 0.3, 700, 130)
    yield "two sizes", two
