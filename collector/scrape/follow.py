"""Follow one engine's page: what grew since the page before goes to a meter, and what is so now.

The first page only says where totals stand. A total that goes down has begun again from 0, and all of its
engine's with it: an engine that restarted counts on in the same page, and nothing of it is lost or doubled. A
page that did not come is made up for by the next one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np

from moescope.collector.recorder import Meter
from moescope.collector.scrape.page import Page, Sample
from moescope.collector.scrape.rows import BUCKET, Counted, EngineTable, Observed, State
from moescope.schemas.records import IntArray

logger = logging.getLogger("moescope")

_Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
_PROCESS_START: Final = "process_start_time_seconds"
_SEVERAL: Final = 3
_OF_PAGES: Final = 12


class Follower:
    """Follows one engine of one page.

    Args:
        table: the engine's names.
        meter: what is told.
        is_new: the page was read before without this engine on it, so that its totals began at 0.
    """

    def __init__(self, table: EngineTable, meter: Meter, *, is_new: bool = False) -> None:
        self._table = table
        self._meter = meter
        self._last: dict[_Key, float] | None = {} if is_new else None
        self._owed = _Owed()
        self._states: dict[tuple[str, str], State] = {}
        self._restarts: deque[bool] = deque(maxlen=_OF_PAGES)
        self._said: set[str] = set()

    def follow(self, page: Page, *, has_restarted: bool = False) -> None:
        """Take the next page; ``has_restarted`` where its process is known to be another one."""
        for total in self._table.totals(self._growth(page, has_restarted=has_restarted)):
            if isinstance(total, Counted):
                if value := self._owed.settle(total):
                    self._meter.add(total.metric, value, total.attributes)
            else:
                counts = self._owed.settle_buckets(total)
                if counts.any():
                    self._meter.add_distribution(total.metric, counts, max(total.sum, 0.0), total.attributes)
        self._tell_states(page)
        self._say_once(page)

    def _growth(self, page: Page, *, has_restarted: bool) -> Page:
        """The same samples with what came to each since the page before; nothing for the first page."""
        totals = page.named(self._table.names)
        now = {_key(name, sample): sample.value for name, sample in _samples(totals)}
        last = self._last
        self._last = now if last is None else {**last, **now}
        if last is None:
            return Page()
        has_restarted = has_restarted or _has_restarted(now, last)
        self._note(has_restarted)
        if has_restarted:
            self._owed = _Owed()
            self._last, last = now, {}
        return Page(
            {
                name: [
                    replace(sample, value=sample.value - last.get(_key(name, sample), 0.0))
                    for sample in group
                ]
                for name, group in totals.samples.items()
            }
        )

    def _tell_states(self, page: Page) -> None:
        before, self._states = self._states, {}
        for state in self._table.now(page):
            self._states[state.metric.name, str(state.attributes)] = state
            self._meter.set_state(state.metric, state.value, state.attributes)
        for key in before.keys() - self._states.keys():
            self._meter.forget_state(before[key].metric, before[key].attributes)

    def _note(self, has_restarted: bool) -> None:
        self._restarts.append(has_restarted)
        if has_restarted and sum(self._restarts) == _SEVERAL:
            self._warn(
                f"totals went down {_SEVERAL} times within {len(self._restarts)} pages. Does the URL lead to "
                "several engines by turns? Give each engine's own URL"
            )

    def _say_once(self, page: Page) -> None:
        for remark in self._table.remarks(page):
            self._warn(remark)

    def _warn(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            logger.warning("moescope: %s", sentence)


@dataclass(slots=True)
class _Owed:
    """What was told too early.

    A page is not read in one instant: a difference of two of its totals may run ahead by what one of them
    lacks yet, and is owed by the next page. So sums stay right and no count goes down.
    """

    counters: dict[object, int] = field(default_factory=dict)
    buckets: dict[object, IntArray] = field(default_factory=dict)

    def settle(self, total: Counted) -> int:
        key = (total.metric.name, str(total.attributes))
        value = total.value + self.counters.pop(key, 0)
        if value < 0:
            self.counters[key] = value
        return max(value, 0)

    def settle_buckets(self, total: Observed) -> IntArray:
        key = (total.metric.name, str(total.attributes))
        counts = total.bucket_counts.copy()
        counts += self.buckets.pop(key, np.zeros_like(counts))
        if (counts < 0).any():
            self.buckets[key] = np.minimum(counts, 0)
        told: IntArray = np.maximum(counts, 0)
        return told


def process_start(page: Page) -> float | None:
    """When the process of the page started, where it says so."""
    starts = page.of(_PROCESS_START)
    return starts[0].value if len(starts) == 1 else None


def _samples(page: Page) -> Iterator[tuple[str, Sample]]:
    for name, group in page.samples.items():
        for sample in group:
            yield name, sample


def _key(name: str, sample: Sample) -> _Key:
    return name, tuple(sorted(sample.labels.items()))


def _has_restarted(now: dict[_Key, float], last: dict[_Key, float]) -> bool:
    """Whether any total went down, or a known histogram has other buckets."""
    if any(value < last.get(key, 0.0) for key, value in now.items()):
        return True
    known = {_without_bound(key) for key in last if key[0].endswith(BUCKET)}
    return any(key not in last and _without_bound(key) in known for key in now if key[0].endswith(BUCKET))


def _without_bound(key: _Key) -> _Key:
    return key[0], tuple(label for label in key[1] if label[0] != "le")
