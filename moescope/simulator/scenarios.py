"""What can go wrong, when, and what exactly is planted: the words of ``--scenario``.

``hot-expert`` lasts the whole run, ``slow-rank@10m-20m`` from its tenth to its twentieth minute,
``dead-rank@15m`` from its fifteenth to its end; several are separated by commas. A time counts from the start
of the run, backfill included. A scenario is on in every window whose middle lies in its span.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from moescope.schemas.errors import UsageError
from moescope.schemas.topology import ModelShape
from moescope.simulator.expert_load import plant_hot_expert

SLOW_RANK: Final = 5
SLOW_FACTOR: Final = 2.5
DEAD_RANK: Final = 7
KDA_RANK: Final = 3
SKEWED_RANK: Final = 2
SKEW_SECONDS: Final = 180
DUPLICATE_RANKS: Final = (1, 4)
"""The second of them starts again under the instance id of the first."""
SILENT_RANK: Final = 6

CONGESTION_ARRIVALS: Final = 2.0
CONGESTION_PROMPT: Final = 1.5
LONG_PROMPT: Final = 12.0
LONG_ARRIVALS: Final = 0.25
STORM_HIT_CHANCE: Final = 0.02
KDA_CHECKPOINTS_PER_SECOND: Final = 0.25
"""Of the engine of :data:`KDA_RANK`: KDA states that sessions keep and that nobody releases."""

_DEFAULT_START_SECONDS: Final = 120.0


class Scenario(StrEnum):
    """What goes wrong."""

    HOT_EXPERT = "hot-expert"
    TOPIC_SHIFT = "topic-shift"
    SLOW_RANK = "slow-rank"
    DEAD_RANK = "dead-rank"
    ROUTER_DOWN = "router-down"
    KDA_PRESSURE = "kda-pressure"
    LONG_CONTEXT = "long-context"
    PREFILL_CONGESTION = "prefill-congestion"
    CACHE_MISS_STORM = "cache-miss-storm"
    SKEWED_CLOCK = "skewed-clock"
    DUPLICATE_INSTANCE = "duplicate-instance"
    SILENT_RANK = "silent-rank"


_STARTS_LATER: Final = frozenset({Scenario.DEAD_RANK, Scenario.SILENT_RANK})
"""Nobody misses a rank that was never there: without a time they begin after two minutes."""


@dataclass(frozen=True, slots=True)
class ScheduledScenario:
    """A scenario and its span, in seconds since the start of the run; ``math.inf`` is the end of the run."""

    scenario: Scenario
    start_seconds: float = 0.0
    end_seconds: float = math.inf

    def is_on(self, start_seconds: float, end_seconds: float) -> bool:
        """Whether it is on in a window."""
        return self.start_seconds <= (start_seconds + end_seconds) / 2 < self.end_seconds


def parse_scenarios(texts: Iterable[str]) -> tuple[ScheduledScenario, ...]:
    """Read the words of ``--scenario``, each once.

    Raises:
        UsageError: an unknown word, or a time that is none.
    """
    words = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    return tuple(dict.fromkeys(_parse(word) for word in words))


def active(
    schedule: Sequence[ScheduledScenario], start_seconds: float, end_seconds: float
) -> frozenset[Scenario]:
    """The scenarios that are on in a window."""
    return frozenset(item.scenario for item in schedule if item.is_on(start_seconds, end_seconds))


def plant_of(scenario: Scenario, shape: ModelShape, ranks: int) -> Mapping[str, int | float | list[int]]:
    """What a scenario plants, in the words of the truth file. Ranks are of the first EP group."""
    hot = plant_hot_expert(shape, ranks=ranks)
    plants: Mapping[Scenario, Mapping[str, int | float | list[int]]] = {
        Scenario.HOT_EXPERT: {"layer": hot.layer, "expert": hot.expert, "popularity": hot.factor},
        Scenario.SLOW_RANK: {"ep_rank": rank_in(SLOW_RANK, ranks), "times_slower": SLOW_FACTOR},
        Scenario.DEAD_RANK: {"ep_rank": rank_in(DEAD_RANK, ranks)},
        Scenario.KDA_PRESSURE: {
            "ep_rank": rank_in(KDA_RANK, ranks),
            "checkpoints_per_second": KDA_CHECKPOINTS_PER_SECOND,
        },
        Scenario.LONG_CONTEXT: {"times_longer_prompts": LONG_PROMPT, "times_arrivals": LONG_ARRIVALS},
        Scenario.PREFILL_CONGESTION: {
            "times_longer_prompts": CONGESTION_PROMPT,
            "times_arrivals": CONGESTION_ARRIVALS,
        },
        Scenario.CACHE_MISS_STORM: {"hit_chance": STORM_HIT_CHANCE},
        Scenario.SKEWED_CLOCK: {"ep_rank": rank_in(SKEWED_RANK, ranks), "seconds_ahead": SKEW_SECONDS},
        Scenario.DUPLICATE_INSTANCE: {"ep_ranks": [rank_in(rank, ranks) for rank in DUPLICATE_RANKS]},
        Scenario.SILENT_RANK: {"ep_rank": rank_in(SILENT_RANK, ranks)},
    }
    return plants.get(scenario, {})


def rank_in(rank: int, ranks: int) -> int:
    """The planted rank, or the last one of a group that is smaller."""
    return min(rank, ranks - 1)


def hint(word: str, known: Iterable[str]) -> str:
    """The nearest known word, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; use one of: {', '.join(names)}"


_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)?")
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}


def _parse(word: str) -> ScheduledScenario:
    name, _, span = word.partition("@")
    known = [scenario.value for scenario in Scenario]
    if name not in known:
        raise UsageError(f"unknown scenario {name!r}{hint(name, known)}")
    scenario = Scenario(name)
    if not span:
        if "@" in word:
            raise UsageError(f"scenario {word!r} has no time; write {name}@10m or {name}@10m-20m")
        return ScheduledScenario(scenario, _DEFAULT_START_SECONDS if scenario in _STARTS_LATER else 0.0)
    start_text, _, end_text = span.partition("-")
    start = _seconds(word, start_text)
    end = _seconds(word, end_text) if end_text else math.inf
    if end <= start:
        raise UsageError(f"scenario {word!r} ends before it starts")
    return ScheduledScenario(scenario, start, end)


def _seconds(word: str, text: str) -> float:
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"scenario {word!r}: {text!r} is no time; write 90s, 10m or 2h, as in slow-rank@10m-20m"
        )
    return float(match[1]) * _SECONDS[match[2]]
