"""Which accepted points the fleet's page takes, and as what."""

import time
from collections import Counter

import numpy as np
import pytest

from moescope.exporters.otlp_wire import OtlpPacker
from moescope.exporters.page_source import source_of
from moescope.exporters.prometheus_counts import PageCounts
from moescope.schemas import metrics as m
from moescope.schemas.attributes import PHASE, STAGE
from moescope.schemas.records import Distribution, IndexedCounts, Window
from moescope.server.otlp_decode import Encoding, decode
from moescope.server.otlp_messages import NO_RECORDED_VALUE
from moescope.server.page_windows import LeftOut, page_windows
from tests.exporters.golden_pages import TINY, full_window
from tests.server.otlp_requests import (
    CUMULATIVE,
    counter,
    expert_request,
    gauge,
    histogram,
    index_point,
    key_values,
    request_of,
    resource_of,
)

RESOURCE = resource_of("fleet", "one")


def read(*metrics):
    body = request_of(RESOURCE, *metrics).SerializeToString()
    return page_windows(decode(body, Encoding.PROTOBUF), time.time_ns())


def test_page_over_the_wire_is_the_page_of_the_windows_themselves():
    """What an engine shows of itself and what the server shows of it are the same numbers."""
    window = full_window(TINY, 2, 1)
    who = source_of(RESOURCE)
    direct, received = (PageCounts(clock_ns=lambda: window.end_ns) for _ in range(2))
    direct.add(who, window)
    for body in OtlpPacker(RESOURCE).pack(window):
        found = page_windows(decode(body, Encoding.PROTOBUF), time.time_ns())
        assert found.left_out == Counter()
        for source, part in found.windows:
            assert source == who
            received.add(source, part)

    def rounded(counts: PageCounts) -> dict:
        return {
            (family.metric.name, sample.labels): sample.value
            if not isinstance(sample.value, float)
            else pytest.approx(sample.value)
            for family in counts.snapshot()
            for sample in family.samples
        }

    assert rounded(received) == rounded(direct)


def test_metrics_that_no_page_shows_cost_nothing():
    found = page_windows(decode(expert_request("fleet", [[13, 23]]), Encoding.PROTOBUF), time.time_ns())

    assert (found.windows, found.left_out) == ((), Counter())


@pytest.mark.parametrize(
    "metric",
    [
        counter(13, name=m.PREFIX_CACHE_TOKENS.name, temporality=CUMULATIVE),
        counter(13, name=m.REQUESTS_RUNNING.name),
        gauge(13, name=m.TOKENS.name),
        histogram(index_point([13, 23]), name=m.RANK_TOKENS.name, temporality=CUMULATIVE),
    ],
    ids=["cumulative counter", "state that is a change", "counter as a gauge", "cumulative histogram"],
)
def test_point_of_the_wrong_form_is_left_out(metric):
    found = read(metric)

    assert found.windows == ()
    assert found.left_out == {LeftOut.TEMPORALITY: 1}


def test_latency_with_bounds_of_somebody_else_is_left_out():
    point = {
        "start_time_unix_nano": time.time_ns() - 10**9,
        "time_unix_nano": time.time_ns(),
        "count": 13,
        "sum": 23.0,
        "bucket_counts": [13, 0],
        "explicit_bounds": [7.9],
    }

    assert read(histogram(point, name=m.TIME_TO_FIRST_TOKEN.name, unit="s")).left_out == {LeftOut.BOUNDS: 1}


def test_point_that_says_it_has_no_value_is_not_shown_as_zero():
    found = read(gauge(None, name=m.REQUESTS_RUNNING.name, flags=NO_RECORDED_VALUE))

    assert (found.windows, found.left_out) == ((), {LeftOut.NO_VALUE: 1})


def test_window_of_long_ago_is_history_and_no_traffic():
    old = time.time_ns() - 700 * 10**9
    fresh = {"attributes": key_values({PHASE: "decode"})}
    found = read(counter(13, **fresh), counter(23, time_unix_nano=old, start_time_unix_nano=old - 1, **fresh))

    assert found.left_out == {LeftOut.OLD: 1}
    (((_, window),),) = (found.windows,)
    assert [record.value for record in window.records] == [13]


def test_large_arrays_are_not_kept_while_the_request_waits():
    layers = np.arange(1, 93)
    wide = IndexedCounts(
        m.EXPERT_FAILOVERS, layers, np.ones((92, 896), dtype=np.int64), {m.a.REASON: "timeout"}
    )
    waits = IndexedCounts(
        m.DISPATCH_WAIT,
        np.empty(0, dtype=np.int64),
        np.arange(64, dtype=np.int64)[None, :],
        {STAGE: "combine"},
    )
    duration = Distribution(m.STEP_DURATION, np.arange(13), 7.9, {PHASE: "decode"})
    end_ns = time.time_ns()
    (body,) = OtlpPacker(RESOURCE).pack(Window(end_ns - 10**9, end_ns, (wide, waits, duration)))
    found = page_windows(decode(body, Encoding.PROTOBUF), end_ns)
    arrays = [
        record.bucket_counts if isinstance(record, Distribution) else record.counts_per_row_index
        for _, window in found.windows
        for record in window.records
    ]

    assert sum(array.sum() for array in arrays) == 92 * 896 + 63 * 32 + 13 * 6
    assert sum(array.nbytes for array in arrays) == 8 * (92 + 64 + 13)
    assert all(array.base is None or array.base.nbytes == array.nbytes for array in arrays)
