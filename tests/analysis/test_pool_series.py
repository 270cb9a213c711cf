"""Rows of the store on one axis of steps: engines, limits, and what is not said."""

import numpy as np

from moescope.analysis.memory_forecast import Unit
from moescope.analysis.pool_series import arrange_states
from moescope.schemas.attributes import MemoryPool


def _row(metric, rank, states, pool="", first=0):
    steps = [(first + at) * 10_000 for at in range(len(states))]
    return {"metric": metric, "pool": pool, "ep_rank": rank, "steps_ms": steps, "states": list(states)}


def test_nothing_stored_is_nothing_known():
    states = arrange_states([])
    assert (states.engines, states.series(), states.caches()) == ((), (), ())
    assert len(states.running()) == 0


def test_slots_are_taken_before_bytes_and_a_pool_without_a_limit_is_left_out():
    states = arrange_states(
        [
            _row("moe.kda_state.slots", 0, range(13)),
            _row("moe.kda_state.slots.limit", 0, [79, 79]),
            _row("moe.memory.usage", 0, range(13), "kda_state"),
            _row("moe.memory.limit", 0, [7_900], "kda_state"),
            _row("moe.memory.usage", 0, range(13), "transfer"),
            _row("moe.memory.limit", 0, [23], "transfer"),
            _row("moe.memory.usage", 0, range(13), "mla_kv_cache"),
            _row("moe.memory.usage", 0, range(13), "weights"),
            _row("moe.memory.limit", 0, [12], "weights"),
        ]
    )
    found = {one.pool: (one.unit, one.limit) for one in states.series()}
    assert found == {
        MemoryPool.KDA_STATE: (Unit.SLOTS, 79),
        MemoryPool.TRANSFER: (Unit.BYTES, 23),
    }


def test_ranks_that_share_their_caches_are_one_engine_and_counted_once():
    rows = []
    for rank, offset in ((0, 0), (1, 0), (2, 7), (3, 7)):
        rows += [
            _row("moe.kda_state.slots", rank, np.arange(13) + offset),
            _row("moe.kda_state.slots.limit", rank, [128]),
            _row("moe.memory.usage", rank, np.arange(13) * 5, "kda_state"),
            _row("moe.memory.limit", rank, [640], "kda_state"),
            _row("moe.memory.usage", rank, [23] * 13, "weights"),
        ]
    states = arrange_states(rows)

    assert states.engines == ((0, 1), (2, 3))
    assert states.used(MemoryPool.KDA_STATE).tolist() == [2 * at + 7 for at in range(13)]
    first, second = states.caches()
    assert (first.ranks, first.slots, first.slots_limit, first.slot_bytes) == ((0, 1), 12, 128, 5)
    assert (second.ranks, second.slots) == ((2, 3), 19)
    assert np.isnan(first.blocks)
    assert not first.is_shared


def test_same_limit_and_same_bytes_are_one_set_of_blocks():
    rows = []
    for metric, pool, used in (
        ("moe.kda_state.slots", "kda_state", 13),
        ("moe.mla_kv_cache.blocks", "mla_kv_cache", 79),
    ):
        rows += [
            _row(metric, 0, [used]),
            _row(f"{metric}.limit", 0, [1_000]),
            _row("moe.memory.usage", 0, [used * 7], pool),
            _row("moe.memory.limit", 0, [7_000], pool),
        ]
    (caches,) = arrange_states(rows).caches()
    assert caches.is_shared
    assert caches.free_slots == caches.free_blocks == 908


def test_step_in_which_somebody_was_silent_has_no_sum():
    states = arrange_states(
        [
            _row("moe.requests.running", 0, [7, 13, 23]),
            _row("moe.requests.running", 4, [1, 2], first=1),
        ]
    )
    np.testing.assert_array_equal(states.running(), [np.nan, 14, 25])


def test_engine_that_fell_silent_has_no_room_and_no_forecast():
    """Its newest states are old: nobody can be sent there, and its growth has ended."""
    rows = []
    for rank, known in ((0, 31), (1, 13), (2, 29)):
        rows += [
            _row("moe.kda_state.slots", rank, np.arange(known) * (rank + 2)),
            _row("moe.kda_state.slots.limit", rank, [128]),
        ]
    states = arrange_states(rows)
    assert states.engines == ((0,), (2,)), "rank 1 stopped three minutes ago, rank 2 is late by 20 s"
    assert [one.ranks for one in states.caches()] == [one.ranks for one in states.series()] == [(0,), (2,)]
    assert states.used(MemoryPool.KDA_STATE)[28] == 28 * (2 + 4)


def test_group_of_which_all_fell_silent_is_shown_as_it_was():
    states = arrange_states([_row("moe.kda_state.slots", rank, [7, 13]) for rank in (0, 4)])
    assert states.engines == ((0,), (4,))
