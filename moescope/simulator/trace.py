"""Requests that arrive: bursts, lognormal lengths with a long tail, prompts that share prefixes. Seeded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.schemas.records import FloatArray, IntArray

_BURST_SIZE: Final = 1.5
"""Requests that arrive together, on average: clients fan out."""
_BURST_SECONDS: Final = 2.0
_LEVEL_SIGMA: Final = 0.15
_LEVEL_SECONDS: Final = 300.0
"""The arrival rate drifts by about 15 % within minutes."""
_PROMPT_MEDIAN: Final = 1200
_PROMPT_SIGMA: Final = 1.0
_LONG_CHANCE: Final = 0.002
_LONG_MEDIAN: Final = 60_000
_LARGEST_PROMPT: Final = 900_000
_OUTPUT_MEDIAN: Final = 330
_OUTPUT_SIGMA: Final = 0.9
_LARGEST_OUTPUT: Final = 16_384
ORDINARY_HIT_CHANCE: Final = 0.12
"""Prompts that the prefix cache holds whole, but for their last tokens."""
_PARTIAL_PER_HIT: Final = 3.5
"""Prompts whose beginning it holds, for each one that it holds whole."""
CACHE_BLOCK_TOKENS: Final = 64
"""The prefix cache finds whole blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How the scenarios change what arrives. Factors on the ordinary trace."""

    arrivals: float = 1.0
    prompt: float = 1.0
    hit_chance: float = ORDINARY_HIT_CHANCE


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests in the order of their arrival; all arrays ``[requests]``.

    Attributes:
        arrival: float64, seconds since the start of the run.
        engine: int64, the data-parallel engine that gets it.
        prompt: int64, tokens.
        cached: int64, prompt tokens that the prefix cache holds.
        output: int64, tokens that will be generated, at least one.
    """

    arrival: FloatArray
    engine: IntArray
    prompt: IntArray
    cached: IntArray
    output: IntArray


def no_arrivals() -> Arrivals:
    """Nobody."""
    whole = np.empty(0, dtype=np.int64)
    return Arrivals(np.empty(0), whole, whole, whole, whole)


class Trace:
    """Arrivals of one EP group.

    Args:
        seed: decides everything.
        group: ordinal of the EP group.
        requests_per_second: of one engine in ordinary weather.
    """

    def __init__(self, seed: int, group: int, requests_per_second: float) -> None:
        self._rng = np.random.default_rng([seed, 3, group])
        self._requests_per_second = requests_per_second
        self._level = 0.0

    def arrive(self, start: float, end: float, engines: IntArray, weather: Weather) -> Arrivals:
        """Draw what arrives in a window at the ``engines`` that serve."""
        rng = self._rng
        keep = float(np.exp(-(end - start) / _LEVEL_SECONDS))
        self._level = keep * self._level + float(rng.normal(0, _LEVEL_SIGMA * np.sqrt(1 - keep * keep)))
        rate = self._requests_per_second * weather.arrivals * float(np.exp(self._level)) * len(engines)
        bursts = int(rng.poisson(rate * (end - start) / _BURST_SIZE))
        sizes = rng.geometric(1 / _BURST_SIZE, bursts)
        first = np.repeat(rng.uniform(start, end, bursts), sizes)
        later = first + rng.exponential(_BURST_SECONDS, len(first)) - start
        arrival = np.sort(start + later % (end - start))
        count = len(arrival)
        prompt = self._prompts(count, weather)
        output = np.exp(rng.normal(np.log(_OUTPUT_MEDIAN), _OUTPUT_SIGMA, count))
        return Arrivals(
            arrival,
            rng.choice(engines, count) if len(engines) else np.empty(0, dtype=np.int64),
            prompt,
            self._cached(prompt, weather),
            np.clip(output, 1, _LARGEST_OUTPUT).astype(np.int64),
        )

    def _prompts(self, count: int, weather: Weather) -> IntArray:
        rng = self._rng
        is_long = rng.random(count) < _LONG_CHANCE
        median = np.where(is_long, _LONG_MEDIAN, _PROMPT_MEDIAN) * weather.prompt
        tokens = median * np.exp(rng.normal(0, _PROMPT_SIGMA, count))
        return np.clip(tokens, 16, _LARGEST_PROMPT).astype(np.int64)

    def _cached(self, prompt: IntArray, weather: Weather) -> IntArray:
        rng = self._rng
        drawn = rng.random(len(prompt))
        is_hit = drawn < weather.hit_chance
        is_partial = ~is_hit & (drawn < weather.hit_chance * (1 + _PARTIAL_PER_HIT))
        beginning = prompt * rng.uniform(0.3, 0.95, len(prompt)) * is_partial
        found = np.where(is_hit, prompt - 1, beginning.astype(np.int64))
        blocks: IntArray = found // CACHE_BLOCK_TOKENS * CACHE_BLOCK_TOKENS
        return blocks
