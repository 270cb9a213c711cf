"""Looks at every point and rejects, one by one, what cannot be stored; the rest of the batch is kept.

A check is a boolean array over the points of a block. The first check that a point fails names its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from moescope.schemas import attributes as a
from moescope.schemas.errors import RejectedPointError
from moescope.schemas.metrics import Encoding, Kind, Metric, get_metric, is_registered
from moescope.schemas.settings import Settings
from moescope.server.attribute_text import int_attribute
from moescope.server.bucket_checks import MAX_COUNT, Checks, bucket_checks
from moescope.server.buckets import BoolArray, Buckets, UIntArray
from moescope.server.load_checks import load_checks, width_checks
from moescope.server.model_shapes import ModelShapes
from moescope.server.otlp_decode import Block, PointKind
from moescope.server.otlp_messages import NO_RECORDED_VALUE, UNSPECIFIED_TEMPORALITY
from moescope.server.reasons import SENTENCES, Reason

_NS: Final = 1_000_000_000
_TIME_UNITS: Final = frozenset({"s", "ms", "us", "ns", "min", "h", "d"})
MAX_MESSAGES: Final = 5
"""Sentences that travel back in one answer."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What of a request can be stored.

    Attributes:
        blocks: the blocks without their rejected points; a block without points left is gone.
        accepted: points in ``blocks``.
        rejected: how many points were rejected, by reason.
        errors: the first few rejections, one per metric and reason.
    """

    blocks: tuple[Block, ...]
    accepted: int
    rejected: Counter[Reason] = field(default_factory=Counter)
    errors: tuple[RejectedPointError, ...] = ()


class Validator:
    """Judges requests. Thread-safe: all it remembers are the model shapes."""

    def __init__(self, settings: Settings, shapes: ModelShapes | None = None) -> None:
        self._max_future_ns = int(settings.max_future_seconds * _NS)
        self._max_age_ns = int(settings.max_age_seconds * _NS)
        self._shapes = ModelShapes() if shapes is None else shapes

    def judge(self, blocks: Sequence[Block], now_ns: int) -> Verdict:
        """Split the points of a request into those to keep and those to reject.

        Args:
            blocks: the request.
            now_ns: nanoseconds since the Unix epoch; one clock reading for the whole request.
        """
        kept: list[Block] = []
        rejected: Counter[Reason] = Counter()
        errors: list[RejectedPointError] = []
        accepted = 0
        for block in blocks:
            reasons = self._reasons(block, now_ns)
            good = np.array([reason is None for reason in reasons], dtype=np.bool_)
            block_rejected = Counter(reason for reason in reasons if reason is not None)
            rejected.update(block_rejected)
            if len(errors) < MAX_MESSAGES:
                errors.extend(_error(block, reason, count) for reason, count in block_rejected.items())
            if good.all():
                kept.append(block)
            elif good.any():
                kept.append(_only(block, good))
            accepted += int(good.sum())
        return Verdict(tuple(block for block in kept if block.points), accepted, rejected, tuple(errors))

    def _reasons(self, block: Block, now_ns: int) -> list[Reason | None]:
        reasons: list[Reason | None] = [None] * len(block.points)
        if not block.points:
            return reasons
        for reason, failed in self._checks(block, now_ns):
            for index in np.flatnonzero(failed):
                if reasons[index] is None:
                    reasons[index] = reason
        return reasons

    def _checks(self, block: Block, now_ns: int) -> Checks:
        yield from self._time_checks(block.points, now_ns)
        yield from _VALUE_CHECKS[block.kind](block)
        metric = get_metric(block.name) if is_registered(block.name) else None
        if metric is not None:
            yield from load_checks(block, metric)
        if block.buckets is not None:
            indexed = _is_index_encoded(block, metric)
            yield from bucket_checks(_counts(block.points), block.buckets, indexed)
            if metric is not None and metric.encoding is Encoding.BY_EXPERT:
                yield from self._expert_checks(block, block.buckets)
            if metric is not None:
                yield from width_checks(block, block.buckets, metric)

    def _time_checks(self, points: Sequence[Any], now_ns: int) -> Checks:
        ends = np.array([point.time_unix_nano for point in points], dtype=np.uint64)
        starts = np.array([point.start_time_unix_nano for point in points], dtype=np.uint64)
        yield Reason.NO_TIME, ends == 0
        yield Reason.FUTURE, ends > np.uint64(now_ns + self._max_future_ns)
        yield Reason.TOO_OLD, ends < np.uint64(max(now_ns - self._max_age_ns, 0))
        yield Reason.START_AFTER_END, starts > ends

    def _expert_checks(self, block: Block, buckets: Buckets) -> Checks:
        experts = int_attribute(block.origin.resource.attributes, a.MODEL_EXPERTS)
        if experts is not None:
            yield Reason.EXPERT_COUNT, buckets.count_lengths != experts
        well_formed = buckets.count_lengths[buckets.count_lengths == buckets.bound_lengths + 1]
        if experts is None and len(well_formed):
            experts = int(well_formed[0])
        if experts is not None:
            texts = block.origin.resource_texts
            instance = texts.get(a.SERVICE_NAME, ""), texts.get(a.SERVICE_INSTANCE_ID, "")
            yield Reason.SHAPE_CHANGED, buckets.count_lengths != self._shapes.expected(*instance, experts)


def _is_index_encoded(block: Block, metric: Metric | None) -> BoolArray:
    if metric is not None and metric.is_index_encoded:
        return np.ones(len(block.points), dtype=np.bool_)
    return np.array([_says_index(point) for point in block.points], dtype=np.bool_)


def _says_index(point: Any) -> bool:
    return any(
        item.key == a.ENCODING and item.value.string_value == a.ENCODING_INDEX for item in point.attributes
    )


def _counts(points: Sequence[Any]) -> UIntArray:
    return np.array([point.count for point in points], dtype=np.uint64)


def _number_checks(block: Block) -> Checks:
    values = np.array([_number(point) for point in block.points], dtype=np.float64)
    absent = np.array([point.WhichOneof("value") is None for point in block.points])
    recorded = np.array([not point.flags & NO_RECORDED_VALUE for point in block.points])
    yield Reason.NO_VALUE, absent & recorded
    yield Reason.NOT_FINITE, ~np.isfinite(values)
    if block.kind is PointKind.SUM:
        yield Reason.NO_TEMPORALITY, _all(block, failed=block.temporality == UNSPECIFIED_TEMPORALITY)
        is_counter = block.is_monotonic or _is_registered_counter(block.name)
        yield Reason.NEGATIVE_COUNTER, (values < 0) & is_counter


def _is_registered_counter(name: str) -> bool:
    return is_registered(name) and get_metric(name).kind is Kind.COUNTER


def _number(point: Any) -> float:
    kind = point.WhichOneof("value")
    return 0.0 if kind is None else float(getattr(point, kind))


def _histogram_checks(block: Block) -> Checks:
    yield Reason.NO_TEMPORALITY, _all(block, failed=block.temporality == UNSPECIFIED_TEMPORALITY)
    for name in ("sum", "min", "max"):
        values = np.array([getattr(point, name) for point in block.points], dtype=np.float64)
        yield Reason.NOT_FINITE, ~np.isfinite(values)
        if block.unit in _TIME_UNITS and name != "max":
            yield Reason.NEGATIVE_DURATION, values < 0


def _exponential_checks(block: Block) -> Checks:
    yield from _histogram_checks(block)
    sums = [
        point.zero_count + sum(point.positive.bucket_counts) + sum(point.negative.bucket_counts)
        for point in block.points
    ]
    too_large = np.array([max(total, point.count) >= MAX_COUNT for total, point in _zip(sums, block)])
    yield Reason.COUNT_OUT_OF_RANGE, too_large
    yield Reason.COUNT_MISMATCH, np.array([total != point.count for total, point in _zip(sums, block)])


def _zip(sums: list[int], block: Block) -> Iterator[tuple[int, Any]]:
    return zip(sums, block.points, strict=True)


def _summary_checks(block: Block) -> Checks:
    sums = np.array([point.sum for point in block.points], dtype=np.float64)
    quantiles = [
        all(np.isfinite((item.quantile, item.value)).all() for item in point.quantile_values)
        for point in block.points
    ]
    yield Reason.NOT_FINITE, ~np.isfinite(sums) | ~np.array(quantiles, dtype=np.bool_)
    yield Reason.COUNT_OUT_OF_RANGE, _counts(block.points) >= MAX_COUNT


def _all(block: Block, *, failed: bool) -> BoolArray:
    return np.full(len(block.points), failed)


_VALUE_CHECKS: Final[dict[PointKind, Callable[[Block], Checks]]] = {
    PointKind.GAUGE: _number_checks,
    PointKind.SUM: _number_checks,
    PointKind.HISTOGRAM: _histogram_checks,
    PointKind.EXPONENTIAL_HISTOGRAM: _exponential_checks,
    PointKind.SUMMARY: _summary_checks,
}


def _error(block: Block, reason: Reason, count: int) -> RejectedPointError:
    instance = block.origin.resource_texts.get(a.SERVICE_INSTANCE_ID, "")
    of = f" of {instance}" if instance else ""
    return RejectedPointError(reason, f"{block.name}{of}: {count} point(s) rejected, {SENTENCES[reason]}")


def _only(block: Block, good: BoolArray) -> Block:
    points = [point for point, is_good in zip(block.points, good, strict=True) if is_good]
    buckets = None if block.buckets is None else block.buckets.only(good)
    return replace(block, points=points, buckets=buckets)
