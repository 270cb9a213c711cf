"""Distributions over time: mean and percentiles from the buckets of a histogram.

Percentiles cannot be averaged, so minutes, ranks and groups are merged as bucket counts, and a percentile is
taken last. It is interpolated within its bucket, as Prometheus does; above the last bound nothing is known
but that it is more, so the last bound is what is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis.expert_load import TimeArray
from moescope.analysis.frozen import lock
from moescope.analysis.span import Span
from moescope.analysis.store import Store
from moescope.schemas.metrics import Metric
from moescope.schemas.records import FloatArray, IntArray

QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Percentiles:
    """A distribution in five numbers, in the metric's unit; NaN without observations.

    ``is_capped`` means that the p99 lies above the last bound: it is at least what is shown.
    """

    observations: int
    mean: float
    p50: float
    p90: float
    p99: float
    is_capped: bool = False

    def is_beyond(self, percentile: float) -> bool:
        """Whether one of them lies above the last bound, as the p99 does: there all are that bound."""
        return self.is_capped and percentile >= self.p99


@dataclass(frozen=True, slots=True)
class Distribution:
    """One metric over time. Arrays are ``[steps]``, in the metric's unit.

    Attributes:
        times: datetime64[ms], UTC, starts of the steps that have observations.
        observations: int64.
        mean, p50, p90, p99: float64.
        whole: over the whole span, from its merged buckets.
    """

    metric: Metric
    times: TimeArray
    observations: IntArray
    mean: FloatArray
    p50: FloatArray
    p90: FloatArray
    p99: FloatArray
    whole: Percentiles


@dataclass(frozen=True, slots=True)
class BucketRow:
    """One step of one histogram with one set of buckets.

    Attributes:
        time_ms: start of the step, Unix milliseconds.
        bounds: float64 ``[bounds]``; empty where the sender has no buckets.
        counts: float64 ``[bounds + 1]``, or empty where the sender has no buckets.
        observations: how many, with or without buckets.
        total: sum of the values.
    """

    time_ms: int
    bounds: FloatArray
    counts: FloatArray
    observations: int
    total: float


@dataclass(frozen=True, slots=True)
class DistributionKey:
    """Which distribution: a metric, and where it has them a stage and a phase (else empty)."""

    metric: str
    stage: str = ""
    phase: str = ""


def quantile_of_buckets(bounds: FloatArray, counts: FloatArray, quantile: float) -> FloatArray:
    """Interpolate a quantile within the buckets.

    Args:
        bounds: float64 ``[bounds]``, upper bounds, increasing; the first bucket starts at 0.
        counts: float64 ``[…, bounds + 1]``, the last bucket without an upper bound.
        quantile: from 0 to 1.

    Returns:
        float64 ``[…]``, NaN without observations, the last bound where the quantile lies beyond it.
    """
    if not len(bounds):
        return np.full(counts.shape[:-1], np.nan)
    cumulative = counts.cumsum(axis=-1, dtype=np.float64)
    total = cumulative[..., -1:]
    wanted = quantile * total
    # The first bucket that reaches it and holds something.
    bucket = np.argmax((cumulative >= wanted) & (counts > 0), axis=-1)[..., None]
    inside = np.take_along_axis(counts, bucket, axis=-1)
    below = np.take_along_axis(cumulative, bucket, axis=-1) - inside
    edges = np.concatenate([[0.0], bounds, bounds[-1:]])
    low, high = edges[bucket], edges[np.minimum(bucket + 1, len(bounds))]
    value = low + (high - low) * (wanted - below) / np.where(inside > 0, inside, 1)
    answer: FloatArray = np.where(total > 0, value, np.nan)[..., 0]
    return answer


def rebin_counts(bounds: FloatArray, counts: FloatArray, onto: FloatArray) -> FloatArray:
    """Spread bucket counts over other bounds, evenly within each bucket.

    Args:
        bounds: float64 ``[bounds]`` of the counts.
        counts: float64 ``[bounds + 1]``.
        onto: float64 ``[others]``; what lies above the last of ``bounds`` stays above all of them.

    Returns:
        float64 ``[others + 1]``, with the same sum.
    """
    below = np.interp(onto, np.concatenate([[0.0], bounds]), np.concatenate([[0.0], counts[:-1].cumsum()]))
    return np.diff(below, prepend=0.0, append=counts.sum())


def summarise_buckets(
    bounds: FloatArray, counts: FloatArray, *, observations: int, total: float
) -> Percentiles:
    """Sum up one histogram ``[bounds + 1]``; observations without buckets have a mean and no percentiles."""
    if not observations:
        return Percentiles(0, np.nan, np.nan, np.nan, np.nan)
    p50, p90, p99 = (float(quantile_of_buckets(bounds, counts, q)) for q in QUANTILES.values())
    is_capped = bool(counts[-1] > (1 - QUANTILES["p99"]) * counts.sum())
    return Percentiles(observations, total / observations, p50, p90, p99, is_capped)


def describe_distribution(metric: Metric, rows: Sequence[BucketRow]) -> Distribution:
    """Merge rows of one metric and turn them into percentiles over time.

    Rows of other senders may have other buckets: all are put onto the bounds of all.
    """
    bounds = np.unique(np.concatenate([row.bounds for row in rows]))
    times, step = np.unique([row.time_ms for row in rows], return_inverse=True)
    counts = np.zeros((len(times), len(bounds) + 1))
    observations, totals = np.zeros(len(times), dtype=np.int64), np.zeros(len(times))
    for row, at in zip(rows, step, strict=True):
        observations[at] += row.observations
        totals[at] += row.total
        if len(row.counts) != len(row.bounds) + 1:
            continue  # A histogram may come without buckets: it has a mean and no percentiles.
        if np.array_equal(row.bounds, bounds):
            counts[at] += row.counts
        elif len(row.bounds):
            counts[at] += rebin_counts(row.bounds, row.counts, bounds)
    mean = np.full(len(times), np.nan)
    np.divide(totals, observations, out=mean, where=observations > 0)
    p50, p90, p99 = (lock(quantile_of_buckets(bounds, counts, q)) for q in QUANTILES.values())
    whole = summarise_buckets(
        bounds, counts.sum(axis=0), observations=int(observations.sum()), total=float(totals.sum())
    )
    starts = lock(times.astype("datetime64[ms]"))
    return Distribution(metric, starts, lock(observations), lock(mean), p50, p90, p99, whole)


def read_distributions(
    store: Store, span: Span, metrics: Sequence[Metric]
) -> Mapping[DistributionKey, Distribution]:
    """Read plain histograms, merged over processes, models and layers.

    Raises:
        StoreError: the store cannot answer.
    """
    table = store.query(
        "distribution",
        metrics=[metric.name for metric in metrics],
        step_seconds=span.step_seconds,
        **span.params(),
    )
    rows: dict[DistributionKey, list[BucketRow]] = {}
    for row in table.to_pylist():
        key = DistributionKey(row["metric"], row["stage"], row["phase"])
        rows.setdefault(key, []).append(
            BucketRow(
                row["time_ms"],
                np.array(row["bounds"], dtype=np.float64),
                np.array(row["bucket_counts"], dtype=np.float64),
                row["observations"],
                row["total"],
            )
        )
    by_name = {metric.name: metric for metric in metrics}
    return {key: describe_distribution(by_name[key.metric], of_key) for key, of_key in rows.items()}
