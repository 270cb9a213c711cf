"""`memory_by_pool`, `cache_state`, `prefix_cache` and `gpu` on known states, from a rank to SQL."""

import pytest

from moescope.schemas import metrics
from moescope.schemas.attributes import (
    DIRECTION,
    HW_ID,
    POOL,
    REASON,
    RESULT,
    CacheResult,
    Component,
    CopyReason,
    Direction,
    MemoryPool,
)

GIB = 2**30


def test_state_is_the_last_of_the_minute_and_never_a_sum(fleet):
    rank = fleet.rank()
    for used in (13, 79, 23):
        for pool, times in ((MemoryPool.KDA_STATE, 1), (MemoryPool.MLA_KV_CACHE, 2)):
            rank.set_state(metrics.MEMORY_USAGE, used * times * GIB, {POOL: pool.value})
        fleet.close_window()

    assert fleet.rows("memory_by_pool", "time, ep_rank, pool, used_bytes, limit_bytes, used_ratio") == [
        (fleet.minute(), 0, "kda_state", 23 * GIB, None, None),
        (fleet.minute(), 0, "mla_kv_cache", 46 * GIB, None, None),
    ]


def test_limit_sent_with_every_twelfth_window_stands_beside_every_minute(fleet):
    rank = fleet.rank()
    rank.set_state(metrics.MEMORY_LIMIT, 64 * GIB, {POOL: MemoryPool.WEIGHTS.value})
    for minute in range(4):
        rank.set_state(metrics.MEMORY_USAGE, (minute + 1) * GIB, {POOL: MemoryPool.WEIGHTS.value})
        for _ in range(6):
            fleet.close_window()

    sent = fleet.rows("measurement", "count()", f"metric = '{metrics.MEMORY_LIMIT.name}'")
    assert sent == [(2,)], "two in four minutes"
    assert fleet.rows("memory_by_pool", "time, used_bytes, limit_bytes, used_ratio") == [
        (fleet.minute(minute), (minute + 1) * GIB, 64 * GIB, (minute + 1) / 64) for minute in range(4)
    ]


def test_limit_that_changes_counts_from_its_own_minute_on(fleet):
    rank = fleet.rank()
    for limit in (64, 64, 32, 32):
        rank.set_state(metrics.MEMORY_LIMIT, limit * GIB, {POOL: MemoryPool.RUNTIME.value})
        rank.set_state(metrics.MEMORY_USAGE, 8 * GIB, {POOL: MemoryPool.RUNTIME.value})
        for _ in range(6):
            fleet.close_window()

    assert fleet.rows("memory_by_pool", "used_ratio") == [(0.125,), (0.125,), (0.25,), (0.25,)]


def test_kda_and_mla_are_two_numbers_and_copies_are_added(fleet):
    scheduler = fleet.process(Component.SCHEDULER)
    scheduler.set_state(metrics.KDA_STATE_SLOTS_LIMIT, 128)
    scheduler.set_state(metrics.MLA_KV_CACHE_BLOCKS_LIMIT, 4096)
    for slots, blocks in ((13, 230), (23, 790)):
        scheduler.set_state(metrics.KDA_STATE_SLOTS, slots)
        scheduler.set_state(metrics.MLA_KV_CACHE_BLOCKS, blocks)
        scheduler.add(metrics.KDA_STATE_COPIES, 3, {REASON: CopyReason.COPY_ON_WRITE.value})
        scheduler.add(metrics.KDA_STATE_COPIES, 7, {REASON: CopyReason.CHECKPOINT.value})
        fleet.close_window()

    columns = "kda_slots, kda_slots_limit, kda_copies_on_write, kda_copies_checkpoint"
    assert fleet.rows("cache_state", columns) == [(23, 128, 6, 14)]
    assert fleet.rows("cache_state", "mla_blocks, mla_blocks_limit") == [(790, 4096)]


def test_cache_that_an_engine_does_not_have_is_absent_and_not_empty(fleet):
    scheduler = fleet.process(Component.SCHEDULER)
    scheduler.set_state(metrics.MLA_KV_CACHE_BLOCKS, 0)
    fleet.close_window()

    columns = "kda_slots, kda_slots_limit, mla_blocks, mla_blocks_limit"
    assert fleet.rows("cache_state", columns) == [(None, None, 0, None)]


def test_prefix_cache_adds_the_counters_of_two_processes(fleet):
    counted = {CacheResult.HIT: 130, CacheResult.PARTIAL_HIT: 23, CacheResult.MISS: 51}
    for times in (1, 2):
        process = fleet.process()
        for result, tokens in counted.items():
            process.add(metrics.PREFIX_CACHE_TOKENS, tokens * times, {RESULT: result.value})
    fleet.close_window()

    assert fleet.rows("prefix_cache", "hit_tokens, partial_hit_tokens, miss_tokens, hit_ratio") == [
        (390, 69, 153, pytest.approx(153 / 204))
    ]


def test_gpu_has_the_mean_of_its_utilization_and_the_sum_of_its_traffic(fleet):
    rank = fleet.rank(host="node-3")
    gpu = {HW_ID: "GPU-13"}
    rank.set_state(metrics.GPU_MEMORY_LIMIT, 141 * GIB, gpu)
    for busy, used in ((0.25, 13), (0.75, 79)):
        rank.set_state(metrics.GPU_UTILIZATION, busy, gpu)
        rank.set_state(metrics.GPU_MEMORY_USAGE, used * GIB, gpu)
        rank.add(metrics.GPU_IO, 23, gpu | {DIRECTION: Direction.TRANSMIT.value})
        rank.add(metrics.GPU_IO, 5, gpu | {DIRECTION: Direction.RECEIVE.value})
        fleet.close_window()

    columns = "host, gpu, utilization, memory_used_bytes, memory_limit_bytes, sent_bytes, received_bytes"
    assert fleet.rows("gpu", columns) == [("node-3", "GPU-13", 0.5, 79 * GIB, 141 * GIB, 46, 10)]


def test_gpu_numbers_that_nobody_reports_are_absent(fleet):
    fleet.rank(host="node-3").set_state(metrics.GPU_UTILIZATION, 0.5, {HW_ID: "GPU-13"})
    fleet.close_window()

    columns = "memory_used_bytes, memory_limit_bytes, sent_bytes, received_bytes"
    assert fleet.rows("gpu", columns) == [(None, None, None, None)]
