import bisect
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from moescope.collector.scrape.buckets import rebucket

bound_lists = st.lists(st.floats(1e-4, 1e4, allow_nan=False), min_size=1, max_size=23, unique=True).map(
    sorted
)


@given(bound_lists, bound_lists, st.lists(st.floats(0, 2e4), max_size=79))
def test_counts_are_kept_and_no_value_seems_faster_than_it_was(theirs, ours, values):
    uppers = [*theirs, math.inf]
    cumulative = [sum(value <= upper for value in values) for upper in uppers]

    moved = rebucket(uppers, cumulative, ours)

    assert moved.sum() == len(values)
    true_bucket = np.bincount([bisect.bisect_left(ours, v) for v in values], minlength=len(ours) + 1)
    assert (np.cumsum(moved) <= np.cumsum(true_bucket)).all()


def test_equal_bounds_are_exact():
    bounds = (0.1, 0.2, 0.4)

    assert rebucket([0.1, 0.2, 0.4, math.inf], [13, 13, 36, 115], bounds).tolist() == [13, 0, 23, 79]


def test_the_order_of_the_lines_does_not_matter():
    assert rebucket([math.inf, 0.2, 0.1], [36.0, 13.0, 13.0], (0.1, 0.2)).tolist() == [13, 0, 23]


def test_a_coarse_bucket_goes_where_its_upper_bound_is():
    # Up to 0.3 s: ours are (0.25, 0.5] at best.
    assert rebucket([0.3, math.inf], [79, 79], (0.01, 0.25, 0.5)).tolist() == [0, 0, 79, 0]
