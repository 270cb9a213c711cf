"""What a Prometheus page shows, frozen: families of samples, named by their metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from moescope.schemas.metrics import Metric


@dataclass(frozen=True, slots=True)
class BucketedValue:
    """A distribution since the page's start: counts ``[len(metric.bounds) + 1]``, and their sum."""

    bucket_counts: tuple[int, ...]
    sum: float


SampleValue: TypeAlias = float | BucketedValue


@dataclass(frozen=True, slots=True)
class Sample:
    """One series, or the several of one histogram: label values in the family's order, and the value."""

    labels: tuple[str, ...]
    value: SampleValue


@dataclass(frozen=True, slots=True)
class FamilyState:
    """All samples of one metric."""

    metric: Metric
    label_names: tuple[str, ...]
    samples: tuple[Sample, ...]

    @property
    def num_series(self) -> int:
        """Series on the page: a histogram has one per bucket, a sum and a count."""
        return len(self.samples) * series_per_sample(self.metric)


def series_per_sample(metric: Metric) -> int:
    """How many series one sample of a metric becomes."""
    return len(metric.bounds) + 3 if metric.bounds else 1
