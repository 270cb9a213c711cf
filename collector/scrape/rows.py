"""The rows of an engine's table: which of its names make which row of the registry.

Counters and histograms are sums of samples, so that a row reads the totals of a page and the differences
between two pages alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.collector.scrape.buckets import rebucket
from moescope.collector.scrape.page import Page, Sample, Series
from moescope.collector.tally import NO_ATTRIBUTES
from moescope.schemas.attributes import OPERATION, PROVIDER, REQUEST_MODEL
from moescope.schemas.metrics import Metric
from moescope.schemas.records import Attributes, IntArray

BUCKET: Final = "_bucket"
SUM: Final = "_sum"
COUNT: Final = "_count"
_BOUND_LABEL: Final = "le"


@dataclass(frozen=True, slots=True)
class Counted:
    """What a counter is, or by how much it grew."""

    metric: Metric
    attributes: Attributes
    value: int


@dataclass(frozen=True, slots=True)
class Observed:
    """What a distribution holds, or what came to it: int64 ``[len(metric.bounds) + 1]`` and the sum."""

    metric: Metric
    attributes: Attributes
    bucket_counts: IntArray
    sum: float


@dataclass(frozen=True, slots=True)
class State:
    """What is so now."""

    metric: Metric
    attributes: Attributes
    value: float


@dataclass(frozen=True, slots=True)
class CounterRow:
    """A counter: the sum of ``plus`` less the sum of ``minus``; absent where the page has no ``plus``."""

    metric: Metric
    attributes: Attributes
    plus: tuple[Series, ...]
    minus: tuple[Series, ...] = ()

    @property
    def names(self) -> Iterable[str]:
        """The samples that it is made of."""
        return (series.name for series in (*self.plus, *self.minus))

    def read(self, page: Page) -> Iterable[Counted]:
        """What the page says, or nothing."""
        added = [value for series in self.plus if (value := series.total(page)) is not None]
        if added:
            taken = sum(series.total(page) or 0.0 for series in self.minus)
            yield Counted(self.metric, self.attributes, round(sum(added) - taken))


@dataclass(frozen=True, slots=True)
class HistogramRow:
    """A histogram of requests, one for each model that the page names.

    ``zeros`` counts observations of 0 that the engine made where there was nothing to observe; they are
    taken out again, and their sum is 0.
    """

    metric: Metric
    name: str
    zeros: Series | None = None

    @property
    def names(self) -> Iterable[str]:
        """The samples that it is made of."""
        yield from (self.name + BUCKET, self.name + SUM, self.name + COUNT)
        if self.zeros is not None:
            yield self.zeros.name

    def read(self, page: Page, provider: str, model_of: Callable[[Sample], str]) -> Iterable[Observed]:
        """What the page says of each model, or nothing."""
        for model in dict.fromkeys(model_of(sample) for sample in page.of(self.name + BUCKET)):
            of_model = [s for s in page.of(self.name + BUCKET) if model_of(s) == model]
            upper_bounds, cumulative = _summed_by_bound(of_model)
            counts = rebucket(upper_bounds, cumulative, self.metric.bounds)
            if self.zeros is not None:
                zeros = sum(s.value for s in self.zeros.samples(page) if model_of(s) == model)
                lowest = int(np.searchsorted(self.metric.bounds, min(upper_bounds)))
                counts[lowest] -= round(zeros)
            total = sum(s.value for s in page.of(self.name + SUM) if model_of(s) == model)
            yield Observed(self.metric, request_attributes(provider, model), counts, total)


@dataclass(frozen=True, slots=True)
class StateRow:
    """A state; ``value`` gives None where the page does not know it."""

    metric: Metric
    attributes: Attributes
    value: Callable[[Page], float | None]

    def read(self, page: Page) -> Iterable[State]:
        """What the page says, or nothing."""
        value = self.value(page)
        if value is not None and np.isfinite(value):
            yield State(self.metric, self.attributes, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTable:
    """Everything that is known about one engine's page.

    Attributes:
        engine: its name in the telemetry.
        prefixes: what its names begin with.
        index_label: tells the engines of one page apart; samples without it are the front end's.
        model_labels: where the model's name is, best first.
        rank_label: the EP rank of an index, where the page says it.
        role_label: prefill, decode or anything else, where the page says it.
        repeated_labels: ranks that all say the same; the first one is read.
        remarks: sentences about what this page cannot say.
    """

    engine: str
    prefixes: tuple[str, ...]
    index_label: str
    model_labels: tuple[str, ...]
    counters: tuple[CounterRow, ...] = ()
    histograms: tuple[HistogramRow, ...] = ()
    states: tuple[StateRow, ...] = ()
    rank_label: str = ""
    role_label: str = ""
    repeated_labels: tuple[str, ...] = ()
    remarks: Callable[[Page], Iterable[str]] = lambda _: ()

    def fits(self, page: Page) -> bool:
        """Whether the page is one of this engine."""
        return any(name.startswith(self.prefixes) for name in page.samples)

    def engines(self, page: Page) -> dict[str, Page]:
        """The page of each engine by its index, ``""`` for what belongs to none."""
        own = page.named(name for name in page.samples if name.startswith(self.prefixes))
        pages = {
            index: self._first_of_ranks(_with_label(own, self.index_label, index))
            for index in sorted(own.values_of(self.index_label), key=_by_number)
        }
        return {index: part for index, part in pages.items() if self._is_known(part)}

    def rank_of(self, page: Page) -> int | None:
        """The lowest EP rank of an engine's page, where it says one."""
        ranks = [int(value) for value in page.values_of(self.rank_label) if value.isdigit()]
        return min(ranks, default=None)

    @property
    def names(self) -> frozenset[str]:
        """The samples that only grow."""
        rows: tuple[CounterRow | HistogramRow, ...] = (*self.counters, *self.histograms)
        return frozenset(name for row in rows for name in row.names)

    def model_of(self, sample: Sample) -> str:
        """The model that a sample is about; empty if it does not say."""
        return next((sample.labels[label] for label in self.model_labels if sample.labels.get(label)), "")

    def totals(self, page: Page) -> Iterable[Counted | Observed]:
        """Counters and distributions of a page, or of the difference between two."""
        for counter in self.counters:
            yield from counter.read(page)
        for histogram in self.histograms:
            yield from histogram.read(page, self.engine, self.model_of)

    def now(self, page: Page) -> Iterable[State]:
        """States of a page."""
        for state in self.states:
            yield from state.read(page)

    def _first_of_ranks(self, page: Page) -> Page:
        for label in self.repeated_labels:
            first = min((value for value in page.values_of(label) if value), key=_by_number, default="")
            page = _with_label(page, label, "", first)
        return page

    def _is_known(self, page: Page) -> bool:
        """Whether any row of the table can be read from the page."""
        return bool(page.named(self.names).samples) or next(iter(self.now(page)), None) is not None


def request_attributes(provider: str, model: str) -> Attributes:
    """Attributes of a request metric."""
    return {OPERATION: "text_completion", PROVIDER: provider, REQUEST_MODEL: model}


def state_of(
    metric: Metric, series: Series, attributes: Attributes = NO_ATTRIBUTES, scale: float = 1
) -> StateRow:
    """A state that is a sum of samples, in a multiple of its unit."""
    return StateRow(metric, attributes, lambda page: times(series.total(page), scale))


def times(*factors: float | None) -> float | None:
    """The product; None where a factor is unknown."""
    product = 1.0
    for factor in factors:
        if factor is None:
            return None
        product *= factor
    return product


def _with_label(page: Page, label: str, *values: str) -> Page:
    return page.where(lambda labels: labels.get(label, "") in values)


def _summed_by_bound(samples: Iterable[Sample]) -> tuple[list[float], list[float]]:
    by_bound: dict[float, float] = {}
    for sample in samples:
        bound = float(sample.labels.get(_BOUND_LABEL, "inf"))
        by_bound[bound] = by_bound.get(bound, 0.0) + sample.value
    return list(by_bound), list(by_bound.values())


def _by_number(text: str) -> tuple[int, str]:
    return (int(text), "") if text.isdigit() else (-1, text)
