"""Accepted points become the windows of the fleet's page: only what it shows, and small copies of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

import numpy as np

from moescope.exporters.page_source import Source, source_of
from moescope.schemas.metrics import Encoding, Kind, Metric
from moescope.schemas.page_metrics import PAGE_FAMILIES
from moescope.schemas.records import Distribution, IndexedCounts, IntArray, Measurement, Record, Window
from moescope.server.attribute_text import attribute_texts
from moescope.server.otlp_decode import Block, PointKind
from moescope.server.otlp_messages import DELTA_TEMPORALITY

MAX_AGE_SECONDS: Final = 600.0
"""A window that ended longer ago is history: a backfill must not look like traffic."""

_NS: Final = 1_000_000_000
_SHOWN: Final[dict[str, Metric]] = {family.source.name: family.source for family in PAGE_FAMILIES}
_NO_LAYERS: Final[IntArray] = np.empty(0, dtype=np.int64)
_Times: TypeAlias = tuple[int, int]


class LeftOut(StrEnum):
    """Why an accepted point is not on the page; it is stored all the same."""

    OLD = "old"
    TEMPORALITY = "temporality"
    BOUNDS = "bounds"
    NO_VALUE = "no_value"
    REPEATED = "repeated"
    NO_ROOM = "no_room"


@dataclass(frozen=True, slots=True)
class PageWindows:
    """What one request adds to the page."""

    windows: tuple[tuple[Source, Window], ...] = ()
    left_out: Counter[LeftOut] = field(default_factory=Counter)


def page_windows(blocks: Iterable[Block], now_ns: int) -> PageWindows:
    """Read the windows of a request.

    Args:
        blocks: accepted points.
        now_ns: nanoseconds since the Unix epoch.
    """
    oldest_ns = now_ns - int(MAX_AGE_SECONDS * _NS)
    left_out: Counter[LeftOut] = Counter()
    records: dict[tuple[Source, _Times], list[Record]] = {}
    for block in blocks:
        metric = _SHOWN.get(block.name)
        if metric is None:
            continue
        if not _has_right_form(block, metric):
            left_out[LeftOut.TEMPORALITY] += len(block.points)
            continue
        source = source_of(block.origin.resource_texts)
        for point, record in zip(block.points, _records(block, metric), strict=True):
            if point.time_unix_nano < oldest_ns:
                left_out[LeftOut.OLD] += 1
            elif isinstance(record, LeftOut):
                left_out[record] += 1
            else:
                times = (point.start_time_unix_nano, point.time_unix_nano)
                records.setdefault((source, times), []).append(record)
    windows = tuple((source, Window(*times, tuple(found))) for (source, times), found in records.items())
    return PageWindows(windows, left_out)


def _has_right_form(block: Block, metric: Metric) -> bool:
    """Whether changes come as changes and states as states: a page adds up the one and shows the other."""
    if metric.kind is Kind.HISTOGRAM:
        return block.kind is PointKind.HISTOGRAM and block.temporality == DELTA_TEMPORALITY
    if metric.kind is Kind.COUNTER:
        return block.kind is PointKind.SUM and block.temporality == DELTA_TEMPORALITY
    return block.kind is PointKind.GAUGE or (
        block.kind is PointKind.SUM and block.temporality != DELTA_TEMPORALITY and not block.is_monotonic
    )


def _records(block: Block, metric: Metric) -> Iterator[Record | LeftOut]:
    if block.buckets is None:
        for point in block.points:
            kind = point.WhichOneof("value")
            if kind is None:
                yield LeftOut.NO_VALUE
            else:
                yield Measurement(metric, float(getattr(point, kind)), attribute_texts(point.attributes))
        return
    buckets = block.buckets
    count_ends = np.cumsum(buckets.count_lengths)
    bound_ends = np.cumsum(buckets.bound_lengths)
    for number, point in enumerate(block.points):
        counts = buckets.counts[count_ends[number] - buckets.count_lengths[number] : count_ends[number]]
        bounds = buckets.bounds[bound_ends[number] - buckets.bound_lengths[number] : bound_ends[number]]
        attributes = attribute_texts(point.attributes)
        if metric.encoding is Encoding.BY_PEER_RANK:
            yield IndexedCounts(metric, _NO_LAYERS, counts.astype(np.int64)[None, :], attributes)
        elif metric.is_index_encoded:
            # Only their sum is shown, and a request that waits should not hold its arrays.
            total = np.array([[int(buckets.sums[number])]], dtype=np.int64)
            yield IndexedCounts(metric, _NO_LAYERS, total, attributes)
        elif np.array_equal(bounds, metric.bounds):
            yield Distribution(metric, counts.astype(np.int64), point.sum, attributes)
        else:
            yield LeftOut.BOUNDS
