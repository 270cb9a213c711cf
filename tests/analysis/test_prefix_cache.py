"""What the prefix cache spared."""

import numpy as np

from moescope.analysis.prefix_cache import PrefixCache
from moescope.schemas.attributes import CacheResult


def _cache(hit, partial, miss, seconds=60.0):
    counts = [np.array(column, dtype=np.int64) for column in (hit, partial, miss)]
    times = (np.arange(len(hit)) * 60_000).astype("datetime64[ms]")
    return PrefixCache(times, *counts, np.full(len(hit), seconds))


def test_both_kinds_of_hit_were_found():
    cache = _cache([700, 79], [130, 0], [170, 21])
    assert cache.looked_up == 1_100
    assert cache.ratio == (700 + 130 + 79) / 1_100
    assert cache.ratio_over_time.tolist() == [0.83, 0.79]


def test_nothing_looked_up_has_no_ratio():
    assert _cache([], [], []).ratio is None
    assert np.isnan(_cache([0], [0], [0]).ratio_over_time[0])


def test_rates_are_by_the_time_that_is_covered():
    rates = _cache([1_200], [60], [7], seconds=30.0).per_second
    assert [rates[result].tolist() for result in CacheResult] == [[40.0], [2.0], [7 / 30]]
