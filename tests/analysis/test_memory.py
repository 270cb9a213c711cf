"""Pools: how full, which is fullest, and which are no alarm."""

import numpy as np
import pytest

from moescope.analysis.memory import arrange_pools
from moescope.schemas.attributes import MemoryPool

KDA, MLA, WEIGHTS = MemoryPool.KDA_STATE, MemoryPool.MLA_KV_CACHE, MemoryPool.WEIGHTS


def _pools(*rows, full_ratio=0.95):
    ranks, pools, used, limit = zip(*rows, strict=True)
    limits = [np.nan if one is None else one for one in limit]
    return arrange_pools(
        *(np.array(ranks, dtype=np.int64), list(pools), np.array(used, dtype=float), np.array(limits)),
        full_ratio=full_ratio,
    )


def test_pools_stand_in_the_order_of_the_vocabulary():
    memory = _pools((3, MLA, 23, 79), (3, WEIGHTS, 7, None), (0, MLA, 13, 79))
    assert memory.ranks.tolist() == [0, 3]
    assert memory.pools == (WEIGHTS, MLA)
    np.testing.assert_array_equal(memory.used_bytes, [[np.nan, 13], [7, 23]])


def test_fullest_is_measured_against_its_own_limit():
    memory = _pools((0, KDA, 13, 23), (0, MLA, 79, 790), (1, KDA, 7, 23))
    assert (memory.fullest.rank, memory.fullest.pool) == (0, KDA)
    assert memory.fullest.ratio == 13 / 23
    assert memory.full == ()


def test_full_pools_are_named_the_fullest_first():
    memory = _pools((0, KDA, 96, 100), (1, MLA, 99, 100), (2, MLA, 95, 100))
    assert [(one.rank, one.pool) for one in memory.full] == [(1, MLA), (0, KDA)]


def test_weights_that_fill_their_share_are_no_alarm():
    memory = _pools((0, WEIGHTS, 100, 100), (0, KDA, 13, 100))
    assert memory.full == ()
    assert memory.fullest.pool is KDA
    assert memory.limited == (KDA,)


def test_pool_without_a_limit_is_neither_full_nor_empty():
    memory = _pools((0, KDA, 13, None))
    assert memory.fullest is None
    assert memory.fullest_of(KDA) is None
    assert memory.fullest_of(MLA) is None
    assert memory.describe(0, 0) == "13 B"
    assert np.isnan(memory.total_limits[0])


def test_kda_state_and_mla_cache_are_never_one_number():
    memory = _pools((0, KDA, 13, 100), (0, MLA, 23, 100))
    assert memory.used_bytes.tolist() == [[13, 23]]
    assert memory.fullest_of(KDA).used_bytes == 13


def test_scale_reaches_the_limits_and_what_is_above_them():
    assert _pools((0, KDA, 13, 23), (0, MLA, 7, 79)).largest_total == 102
    assert _pools((0, KDA, 130, 23)).largest_total == 130


def test_no_rank_is_an_answer_too():
    memory = arrange_pools(np.empty(0, dtype=np.int64), [], np.empty(0), np.empty(0), full_ratio=0.95)
    assert memory.fullest is None
    assert memory.largest_total == 0


def test_description_has_used_limit_and_share():
    assert _pools((0, MLA, 23 * 2**30, 92 * 2**30)).describe(0, 0) == "23.0 GiB of 92.0 GiB, 25 %"


@pytest.mark.parametrize("full_ratio", [0.5, 0.9])
def test_threshold_is_a_setting(full_ratio):
    memory = _pools((0, KDA, 79, 100), full_ratio=full_ratio)
    assert bool(memory.full) == (full_ratio < 0.79)


@pytest.mark.parametrize("pool", [WEIGHTS, MemoryPool.REPLICATION, MemoryPool.RUNTIME])
def test_pool_that_is_reserved_at_the_start_is_never_full(pool):
    memory = _pools((0, pool, 100, 100), (0, KDA, 13, 79))
    assert memory.full == ()
    assert memory.fullest.pool is KDA
    assert memory.limited == (KDA,)


@pytest.mark.parametrize("pool", [KDA, MLA, MemoryPool.TRANSFER])
def test_pool_that_fills_with_work_can_be_full(pool):
    (only,) = _pools((7, pool, 97, 100)).full
    assert (only.rank, only.pool, only.ratio) == (7, pool, 0.97)
