"""Percentiles from buckets: merged first, interpolated last."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from moescope.analysis.distribution import (
    BucketRow,
    describe_distribution,
    quantile_of_buckets,
    rebin_counts,
    summarise_buckets,
)
from moescope.schemas import metrics

BOUNDS = np.array([1.0, 2.0, 4.0])
TTFT = metrics.TIME_TO_FIRST_TOKEN


def _row(time_ms, counts, bounds=BOUNDS, total=0.0):
    counts = np.array(counts, dtype=np.float64)
    return BucketRow(time_ms, np.array(bounds, dtype=np.float64), counts, int(counts.sum()), total)


def test_quantile_is_interpolated_within_its_bucket():
    counts = np.array([0.0, 10.0, 0.0, 0.0])
    assert quantile_of_buckets(BOUNDS, counts, 0.5) == 1.5
    assert quantile_of_buckets(BOUNDS, counts, 0.9) == pytest.approx(1.9)


def test_first_bucket_starts_at_zero():
    assert quantile_of_buckets(BOUNDS, np.array([8.0, 0.0, 0.0, 0.0]), 0.25) == 0.25


def test_quantile_beyond_the_last_bound_is_that_bound_and_says_so():
    counts = np.array([13.0, 0.0, 0.0, 79.0])
    assert quantile_of_buckets(BOUNDS, counts, 0.99) == 4.0
    assert summarise_buckets(BOUNDS, counts, observations=92, total=920.0).is_capped


def test_every_percentile_beyond_the_last_bound_says_so():
    summary = summarise_buckets(BOUNDS, np.array([60.0, 0.0, 0.0, 40.0]), observations=100, total=7_900.0)
    assert (summary.p50, summary.p90, summary.p99) == (pytest.approx(50 / 60), 4.0, 4.0)
    assert [summary.is_beyond(one) for one in (summary.p50, summary.p90, summary.p99)] == [False, True, True]


def test_one_slow_request_in_a_thousand_does_not_cap_the_p99():
    summary = summarise_buckets(BOUNDS, np.array([999.0, 0.0, 0.0, 1.0]), observations=1000, total=7.0)
    assert not summary.is_capped
    assert summary.p99 < 1


def test_nothing_observed_has_no_percentile():
    assert np.isnan(quantile_of_buckets(BOUNDS, np.zeros(4), 0.5))
    assert np.isnan(summarise_buckets(BOUNDS, np.zeros(4), observations=0, total=0.0).mean)


def test_sender_without_buckets_has_a_mean_and_no_percentiles():
    row = BucketRow(0, np.empty(0), np.array([13.0]), 13, 6.5)
    distribution = describe_distribution(TTFT, [row])
    assert distribution.whole.mean == 0.5
    assert np.isnan(distribution.whole.p50)


@given(hnp.arrays(np.int64, 4, elements=st.integers(0, 1000)))
def test_quantiles_never_fall(counts):
    values = [quantile_of_buckets(BOUNDS, counts.astype(float), q) for q in (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)]
    if counts.sum():
        assert all(low <= high + 1e-9 for low, high in itertools.pairwise(values))
        assert values[0] >= 0
        assert values[-1] <= 4


@given(hnp.arrays(np.int64, 4, elements=st.integers(0, 1000)))
def test_other_bounds_keep_every_observation(counts):
    onto = np.array([0.5, 1.0, 3.0, 4.0, 9.0])
    spread = rebin_counts(BOUNDS, counts.astype(float), onto)
    assert spread.sum() == pytest.approx(counts.sum())
    assert (spread >= -1e-9).all()
    assert spread[-1] == pytest.approx(counts[-1])


def test_own_bounds_change_nothing():
    counts = np.array([7.0, 13.0, 23.0, 79.0])
    np.testing.assert_allclose(rebin_counts(BOUNDS, counts, BOUNDS), counts)


def test_percentile_of_a_span_comes_from_its_merged_buckets():
    busy, idle = _row(0, [0, 990, 0, 0]), _row(60_000, [0, 0, 10, 0])
    distribution = describe_distribution(TTFT, [busy, idle])
    assert distribution.whole.p50 == pytest.approx(1 + 500 / 990)
    assert distribution.p50.tolist() == [1.5, 3.0]
    assert distribution.whole.p50 < distribution.p50.mean()


def test_rows_of_one_step_are_merged_even_with_other_bounds():
    ours, theirs = _row(0, [0, 13, 0, 0], total=19.5), _row(0, [0, 13], bounds=[1.0], total=65.0)
    distribution = describe_distribution(TTFT, [ours, theirs])
    assert distribution.observations.tolist() == [26]
    assert distribution.mean.tolist() == [84.5 / 26]
    assert distribution.whole.is_capped
    assert distribution.times.tolist() == np.array([0], dtype="datetime64[ms]").tolist()


def test_histogram_without_buckets_has_a_mean_and_leaves_the_percentiles_to_others():
    bare = BucketRow(0, np.array([]), np.array([]), 79, 158.0)
    alone = describe_distribution(TTFT, [bare])
    assert alone.mean.tolist() == [2.0]
    assert np.isnan(alone.whole.p50)
    with_another = describe_distribution(TTFT, [bare, _row(0, [0, 13, 0, 0], total=19.5)])
    assert with_another.observations.tolist() == [92]
    assert with_another.whole.p50 == 1.5
    assert with_another.mean.tolist() == [177.5 / 92]
