"""A pool is a problem when it stays full, not when it is for a moment."""

import numpy as np
import pytest

from moescope.analysis.memory import arrange_pools
from moescope.analysis.memory_findings import lasting
from moescope.analysis.memory_forecast import PoolSeries, Unit
from moescope.schemas.attributes import MemoryPool
from moescope.schemas.settings import Settings

SETTINGS = Settings()
TRANSFER = MemoryPool.TRANSFER


def _full(rank=13):
    return arrange_pools(
        *(np.array([rank]), [TRANSFER], np.array([100.0]), np.array([100.0])),
        full_ratio=SETTINGS.memory_full_ratio,
    )


def _series(used, step=10.0, ranks=(13,)):
    seconds = 1e9 + np.arange(len(used)) * step
    return PoolSeries(ranks, TRANSFER, Unit.BYTES, seconds, np.array(used, dtype=float), 100.0)


@pytest.mark.parametrize("used", [[23] * 12 + [100], [23] * 7 + [100] * 5, [100] * 7 + [79] + [100] * 5])
def test_pool_that_is_full_for_less_than_a_minute_is_no_problem(used):
    assert lasting(_full(), [_series(used)], SETTINGS).full == ()


@pytest.mark.parametrize(
    "series",
    [
        [_series([23] * 7 + [96, 100, 97, 99, 98, 100])],
        [_series([23, 23, 100], step=60.0)],
        [_series([100] * 7, ranks=(12, 13, 14, 15))],
        [_series([23] * 7, ranks=(7,))],
        [],
    ],
    ids=["a whole minute", "windows of a minute", "its engine's", "another rank's", "nothing over time"],
)
def test_pool_that_stays_full_is_a_problem(series):
    (full,) = lasting(_full(), series, SETTINGS).full
    assert (full.rank, full.pool) == (13, TRANSFER)
