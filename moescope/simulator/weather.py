"""How the scenarios change what arrives at a group."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from moescope.simulator.scenarios import (
    CONGESTION_ARRIVALS,
    CONGESTION_PROMPT,
    LONG_ARRIVALS,
    LONG_PROMPT,
    STORM_HIT_CHANCE,
    Scenario,
)
from moescope.simulator.trace import ORDINARY_HIT_CHANCE, Weather

_PATIENCE_SECONDS: Final = 60.0
"""Clients try again for so long while the router is down; then they all come at once."""


class Forecast:
    """Remembers what could not arrive while the router was down."""

    def __init__(self) -> None:
        self._held_seconds = 0.0

    def weather(self, active: Collection[Scenario], seconds: float) -> Weather:
        """What arrives in the next window of that length."""
        arrivals, prompt = 1.0, 1.0
        if Scenario.PREFILL_CONGESTION in active:
            arrivals, prompt = arrivals * CONGESTION_ARRIVALS, prompt * CONGESTION_PROMPT
        if Scenario.LONG_CONTEXT in active:
            arrivals, prompt = arrivals * LONG_ARRIVALS, prompt * LONG_PROMPT
        if Scenario.ROUTER_DOWN in active:
            self._held_seconds = min(self._held_seconds + seconds, _PATIENCE_SECONDS)
            arrivals = 0.0
        else:
            arrivals *= 1 + self._held_seconds / seconds
            self._held_seconds = 0.0
        is_storm = Scenario.CACHE_MISS_STORM in active
        return Weather(
            arrivals=arrivals, prompt=prompt, hit_chance=STORM_HIT_CHANCE if is_storm else ORDINARY_HIT_CHANCE
        )
