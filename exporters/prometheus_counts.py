"""Adds up windows into what a Prometheus page shows: counters that only rise, and states that are current.

Counters start at zero with the process that keeps the page, so that a restart of it is an ordinary counter
reset and `rate()` is right. A rank that restarts goes on in the same series. What nothing is heard of leaves
the page: the states of a process once it is silent, everything of a rank or a group some minutes later, and
neither before two and a half of the process's own windows have passed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from moescope.exporters.page_source import Place, Source, label
from moescope.exporters.prometheus_state import BucketedValue, FamilyState, Sample, series_per_sample
from moescope.schemas.metrics import Kind
from moescope.schemas.page_metrics import (
    PAGE_FAMILIES,
    RANK_LABELS,
    WINDOW_AGE,
    Reading,
)
from moescope.schemas.records import Distribution, IndexedCounts, Measurement, Record, Window

_NS: Final = 1_000_000_000
_PATIENCE_WINDOWS: Final = 2.5
_LONGEST_WINDOW_SECONDS: Final = 3600.0
"""Of the setting interval_seconds: a sender that makes up a start of long ago does not stay for ever."""
_Key: TypeAlias = tuple[int, tuple[str, ...]]

_FAMILIES_OF_SOURCE: Final[dict[str, list[int]]] = {}
for _number, _family in enumerate(PAGE_FAMILIES):
    _FAMILIES_OF_SOURCE.setdefault(_family.source.name, []).append(_number)


@dataclass(slots=True)
class _Sums:
    """Everything that only rises, of one group or rank."""

    leaves_at: float = 0.0
    counters: dict[_Key, float] = field(default_factory=dict)
    distributions: dict[_Key, tuple[list[int], float]] = field(default_factory=dict)


@dataclass(slots=True)
class _Process:
    """What one process said last."""

    instance: str
    silent_at: float = 0.0
    leaves_at: float = 0.0
    end_ns: int = 0
    window_seconds: float = 0.0
    states: dict[_Key, float] = field(default_factory=dict)
    said: set[_Key] = field(default_factory=set)
    """States of the newest window."""


class PageCounts:
    """The windows of a process or of a fleet, added up. Safe to use from several threads.

    Args:
        max_series: most series that windows may make; what would be beyond is left out and counted.
        silent_after_seconds: a process that is silent for so long, and for two and a half of its windows, has
            no states any more.
        forget_seconds: a rank or group that is silent for so long, and for two and a half of its windows,
            leaves the page.
        monotonic: seconds that only rise.
        clock_ns: wall clock, nanoseconds since the Unix epoch.
    """

    def __init__(
        self,
        *,
        max_series: int = 50_000,
        silent_after_seconds: float = 60.0,
        forget_seconds: float = 300.0,
        monotonic: Callable[[], float] = time.monotonic,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._max_series = max_series
        self._silent_after_seconds = silent_after_seconds
        self._forget_seconds = max(forget_seconds, silent_after_seconds)
        self._monotonic = monotonic
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._sums: dict[Place, _Sums] = {}
        self._processes: dict[Place, _Process] = {}
        self._num_series = 0
        self._left_out = 0

    def add(self, source: Source, window: Window) -> int:
        """Add a window; the caller sees to it that no window comes twice.

        Returns:
            how many values found no room on the page.
        """
        with self._lock:
            self._left_out = 0
            now = self._monotonic()
            self._forget(now)
            # A process takes the room of its age at least.
            if source.process not in self._processes and not self._has_room(1):
                return max(len(window.records), 1)
            process = self._process(source, window, now)
            leaves_at = now + self._patience(self._processes[source.process], self._forget_seconds)
            for place in (source.group, source.rank):
                self._hear(place, leaves_at)
            for record in window.records:
                for number in _FAMILIES_OF_SOURCE.get(record.metric.name, ()):
                    self._add_record(number, source, record, process)
            if process is not None:
                self._drop_unsaid(process)
            return self._left_out

    def snapshot(self) -> tuple[FamilyState, ...]:
        """Return every family that has samples, in the order of the declaration."""
        with self._lock:
            self._forget(self._monotonic())
            samples: dict[int, list[Sample]] = {}
            for sums in self._sums.values():
                for (number, labels), value in sums.counters.items():
                    samples.setdefault(number, []).append(Sample(labels, value))
                for (number, labels), (buckets, total) in sums.distributions.items():
                    value_of = BucketedValue(tuple(buckets), total)
                    samples.setdefault(number, []).append(Sample(labels, value_of))
            for (number, labels), value in self._current_states().items():
                samples.setdefault(number, []).append(Sample(labels, value))
            ages = self._ages()
        families = [
            FamilyState(PAGE_FAMILIES[number].metric, PAGE_FAMILIES[number].labels, _sorted(found))
            for number, found in sorted(samples.items())
        ]
        if ages:
            families.append(FamilyState(WINDOW_AGE, RANK_LABELS, _sorted(ages)))
        return tuple(families)

    def _process(self, source: Source, window: Window, now: float) -> _Process | None:
        """The process, if the window is its newest; a late one says nothing about what is now."""
        process = self._processes.get(source.process)
        if process is not None and window.end_ns < process.end_ns:
            return None
        if process is None or process.instance != source.instance:
            if process is not None:
                self._num_series -= len(process.states)
            process = self._processes[source.process] = _Process(source.instance)
        if window.end_ns > process.end_ns:
            process.said = set()
        process.window_seconds = _length_seconds(window, process)
        process.silent_at = now + self._patience(process, self._silent_after_seconds)
        process.leaves_at = now + self._patience(process, self._forget_seconds)
        process.end_ns = window.end_ns
        return process

    @staticmethod
    def _patience(process: _Process, seconds: float) -> float:
        return max(seconds, _PATIENCE_WINDOWS * process.window_seconds)

    def _add_record(self, number: int, source: Source, record: Record, process: _Process | None) -> None:
        family = PAGE_FAMILIES[number]
        tail = tuple(label(record.attributes.get(key, "")) for key in family.keys)
        place = source.rank if family.by_rank else source.group
        key = (number, (*place, *tail))
        if isinstance(record, Distribution):
            if family.reading is Reading.VALUE:
                self._add_distribution(place, key, record)
            else:
                is_total = family.reading is Reading.TOTAL
                value = record.sum if is_total else float(record.bucket_counts.sum())
                self._add_counter(place, key, value)
        elif isinstance(record, IndexedCounts):
            if family.reading is Reading.SUM:
                value = float(record.counts_per_row_index.sum()) * family.scale
                self._add_counter(place, key, value)
            else:
                self._add_by_peer(number, source, record, tail)
        elif record.metric.kind is Kind.COUNTER:
            self._add_counter(place, key, float(record.value))
        elif process is not None:
            self._set_state(process, key, record)

    def _add_by_peer(self, number: int, source: Source, record: IndexedCounts, tail: tuple[str, ...]) -> None:
        totals = record.counts_per_row_index.sum(axis=0)
        for peer in totals.nonzero()[0].tolist():
            value = float(totals[peer]) * PAGE_FAMILIES[number].scale
            # Kept with the group: the others speak of a peer that may be silent itself.
            self._add_counter(source.group, (number, (*source.group, str(peer), *tail)), value)

    def _add_counter(self, place: Place, key: _Key, value: float) -> None:
        counters = self._sums[place].counters
        if key in counters:
            counters[key] += value
        elif self._has_room(1):
            counters[key] = value

    def _add_distribution(self, place: Place, key: _Key, record: Distribution) -> None:
        distributions = self._sums[place].distributions
        found = distributions.get(key)
        if found is not None:
            buckets = [old + new for old, new in zip(found[0], record.bucket_counts.tolist(), strict=True)]
            distributions[key] = (buckets, found[1] + record.sum)
        elif self._has_room(series_per_sample(record.metric)):
            distributions[key] = (record.bucket_counts.tolist(), record.sum)

    def _set_state(self, process: _Process, key: _Key, record: Measurement) -> None:
        process.said.add(key)
        if key in process.states or self._has_room(1):
            process.states[key] = float(record.value)

    def _drop_unsaid(self, process: _Process) -> None:
        """Its sender knows a state no longer if the newest window lacks it; steady ones are not in each."""
        gone = [key for key in process.states.keys() - process.said if not _is_steady(key)]
        self._num_series -= len(gone)
        for key in gone:
            del process.states[key]

    def _has_room(self, series: int) -> bool:
        if self._num_series + series > self._max_series:
            self._left_out += 1
            return False
        self._num_series += series
        return True

    def _hear(self, place: Place, leaves_at: float) -> None:
        if place not in self._sums:
            self._sums[place] = _Sums()
            for number, family in enumerate(PAGE_FAMILIES):
                if family.by_rank == (len(place) == len(RANK_LABELS)):
                    for values in family.starts_with:
                        self._add_counter(place, (number, (*place, *values)), 0.0)
        sums = self._sums[place]
        sums.leaves_at = max(sums.leaves_at, leaves_at)

    def _current_states(self) -> dict[_Key, float]:
        """States over the processes that say them: sums, and the largest of what does not add up."""
        now = self._monotonic()
        current: dict[_Key, float] = {}
        for process in self._processes.values():
            if now > process.silent_at:
                continue
            for key, value in process.states.items():
                before = current.get(key)
                is_sum = PAGE_FAMILIES[key[0]].metric.kind is not Kind.GAUGE
                if before is not None:
                    value = before + value if is_sum else max(before, value)  # noqa: PLW2901 - one value
                current[key] = value
        return current

    def _ages(self) -> list[Sample]:
        newest: dict[Place, int] = {}
        for place, process in self._processes.items():
            rank = place[: len(RANK_LABELS)]
            newest[rank] = max(newest.get(rank, 0), process.end_ns)
        now_ns = self._clock_ns()
        return [Sample(rank, max(now_ns - end_ns, 0) / _NS) for rank, end_ns in newest.items()]

    def _forget(self, now: float) -> None:
        for places in (self._sums, self._processes):
            gone = [at for at, what in places.items() if now > what.leaves_at]
            for place in gone:
                self._num_series -= _size(places.pop(place))


def _is_steady(key: _Key) -> bool:
    return PAGE_FAMILIES[key[0]].source.is_steady


def _length_seconds(window: Window, process: _Process) -> float:
    """How long the process's windows are: by the window, or by the one before where that is nearer.

    A state that a stock SDK sends may start with its process. Parts of one window come one by one.
    """
    if window.end_ns == process.end_ns:
        return process.window_seconds
    length_ns = window.end_ns - (max(window.start_ns, process.end_ns) if window.start_ns else window.end_ns)
    return min(length_ns / _NS, _LONGEST_WINDOW_SECONDS)


def _size(what: _Sums | _Process) -> int:
    if isinstance(what, _Process):
        return 1 + len(what.states)
    buckets = sum(series_per_sample(PAGE_FAMILIES[number].metric) for number, _ in what.distributions)
    return len(what.counters) + buckets


def _sorted(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """By label values, numbers in their order."""
    return tuple(sorted(samples, key=lambda sample: [_sort_key(label) for label in sample.labels]))


def _sort_key(label: str) -> tuple[bool, int, str]:
    is_number = label.isascii() and label.isdigit()
    return (not is_number, int(label) if is_number else 0, label)
