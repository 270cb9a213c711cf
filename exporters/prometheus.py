"""The Prometheus page: frozen families become text, by prometheus-client.

Needs the package prometheus-client, which an engine's environment does not have by itself; so nothing in this
room imports this module before a page is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client import generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString

from moescope.exporters.prometheus_state import BucketedValue, FamilyState, Sample
from moescope.schemas import metrics
from moescope.schemas.metrics import Kind


def render_page(families: Iterable[FamilyState]) -> bytes:
    """Return a page in Prometheus's text format; empty where nothing is known."""
    return generate_latest(live_registry(lambda: families))


def live_registry(snapshot: Callable[[], Iterable[FamilyState]]) -> CollectorRegistry:
    """Return a registry for prometheus-client's own servers: it takes a snapshot for every scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Live(snapshot))
    return registry


def to_prometheus(families: Iterable[FamilyState]) -> Iterator[Metric]:
    """Yield the families in prometheus-client's classes; what is no number is left out."""
    for family in families:
        samples = [sample for sample in family.samples if _is_number(sample)]
        if samples:
            yield _family(family, samples)


class _Live(Collector):
    """Families as they are when somebody looks."""

    def __init__(self, snapshot: Callable[[], Iterable[FamilyState]]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        return to_prometheus(self._snapshot())

    def describe(self) -> Iterable[Metric]:
        return ()


def _family(family: FamilyState, samples: Iterable[Sample]) -> Metric:
    metric = family.metric
    name, words = metric.prometheus_name, metric.description
    if metric.kind is Kind.HISTOGRAM:
        made = HistogramMetricFamily(name, words, labels=family.label_names)
        for sample in samples:
            if isinstance(sample.value, BucketedValue):
                made.add_metric(sample.labels, _buckets(metric, sample.value), sample.value.sum)
        return made
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    plain = kind(name, words, labels=family.label_names)
    for sample in samples:
        if not isinstance(sample.value, BucketedValue):
            plain.add_metric(sample.labels, sample.value)
    return plain


def _buckets(metric: metrics.Metric, value: BucketedValue) -> list[tuple[str, float]]:
    """Upper bound and cumulative count of each bucket."""
    bounds = [*map(floatToGoString, metric.bounds), "+Inf"]
    return list(zip(bounds, accumulate(value.bucket_counts), strict=True))


def _is_number(sample: Sample) -> bool:
    return isinstance(sample.value, BucketedValue) or math.isfinite(sample.value)
