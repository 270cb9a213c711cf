import math
import threading

import numpy as np
import pytest

from moescope.collector.tally import Tally
from moescope.schemas import metrics
from moescope.schemas.attributes import DIRECTION, PHASE, POOL, REASON, RESULT
from moescope.schemas.errors import ShapeError
from moescope.schemas.records import Distribution, IndexedCounts, Measurement


@pytest.fixture
def tally() -> Tally:
    return Tally()


def test_a_counter_holds_what_came_since_the_last_window(tally: Tally):
    tally.add(metrics.PREFIX_CACHE_TOKENS, 13, {RESULT: "hit"})
    tally.add(metrics.PREFIX_CACHE_TOKENS, 10, {RESULT: "hit"})
    tally.add(metrics.PREFIX_CACHE_TOKENS, 79, {RESULT: "miss"})

    first = tally.close_window(snapshot=False)

    assert {(r.attributes[RESULT], r.value) for r in first} == {("hit", 23), ("miss", 79)}
    assert tally.close_window(snapshot=False) == ()


def test_a_state_is_repeated_and_a_steady_one_only_when_it_changes_or_with_a_snapshot(tally: Tally):
    tally.set_state(metrics.MEMORY_USAGE, 13, {POOL: "weights"})
    tally.set_state(metrics.MEMORY_LIMIT, 79, {POOL: "weights"})

    def values(*, snapshot: bool) -> list[int]:
        return [record.value for record in tally.close_window(snapshot=snapshot)]

    assert values(snapshot=False) == [13, 79]
    assert values(snapshot=False) == [13]
    assert values(snapshot=True) == [13, 79]
    tally.set_state(metrics.MEMORY_LIMIT, 80, {POOL: "weights"})
    assert values(snapshot=False) == [13, 80]


def test_a_value_on_a_bound_lies_in_the_bucket_below_it(tally: Tally):
    bounds = metrics.STEP_DURATION.bounds
    for value in (bounds[0], bounds[1], 1e9):
        tally.observe(metrics.STEP_DURATION, value, {PHASE: "decode"})

    [record] = tally.close_window(snapshot=False)

    assert isinstance(record, Distribution)
    assert np.flatnonzero(record.bucket_counts).tolist() == [0, 1, len(bounds)]
    assert record.sum == bounds[0] + bounds[1] + 1e9


def test_the_same_value_several_times_is_one_call(tally: Tally):
    tally.observe(metrics.INTER_TOKEN_LATENCY, 0.02, times=23)

    [record] = tally.close_window(snapshot=False)

    assert record.bucket_counts.sum() == 23
    assert record.sum == pytest.approx(0.46)


def test_arrays_by_index_add_up_and_are_copied(tally: Tally):
    bytes_per_peer = np.array([0, 13, 23])
    tally.add_indexed(metrics.RANK_IO, bytes_per_peer, {PHASE: "decode", DIRECTION: "transmit"})
    bytes_per_peer[:] = 1
    tally.add_indexed(metrics.RANK_IO, bytes_per_peer, {PHASE: "decode", DIRECTION: "transmit"})

    [record] = tally.close_window(snapshot=False)

    assert isinstance(record, IndexedCounts)
    assert record.counts_per_row_index.tolist() == [[1, 14, 24]]


def test_an_array_that_changes_its_length_within_a_window_is_refused(tally: Tally):
    tally.add_indexed(metrics.RANK_TOKENS, [1, 2], {PHASE: "decode"})

    with pytest.raises(ShapeError, match=r"moe.rank.tokens: \(1, 3\) does not add to \(1, 2\)"):
        tally.add_indexed(metrics.RANK_TOKENS, [1, 2, 3], {PHASE: "decode"})


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_an_impossible_value_is_left_out_and_said_once(tally: Tally, value: float, caplog):
    for _ in range(3):
        tally.observe(metrics.STEP_DURATION, value, {PHASE: "decode"})

    assert tally.close_window(snapshot=False) == ()
    [said] = caplog.messages
    assert said.startswith("moescope: moe.step.duration cannot be")


def test_the_wrong_verb_and_an_unknown_attribute_name_the_metric(tally: Tally):
    with pytest.raises(ShapeError, match=r"add\(\) does not fit moe.memory.usage"):
        tally.add(metrics.MEMORY_USAGE, 1, {POOL: "weights"})
    with pytest.raises(ShapeError, match=r"moe.tokens has no attribute moe.reason"):
        tally.add(metrics.TOKENS, 1, {REASON: "x"})
    with pytest.raises(ShapeError, match=r"observe\(\) does not fit moe.rank.io"):
        tally.observe(metrics.RANK_IO, 1)


def test_what_many_threads_add_while_windows_close_is_all_there(tally: Tally):
    def count() -> None:
        for _ in range(5000):
            tally.add(metrics.KDA_STATE_COPIES, 1, {REASON: "checkpoint"})

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    total = 0
    while any(thread.is_alive() for thread in threads):
        total += sum(r.value for r in tally.close_window(snapshot=False) if isinstance(r, Measurement))
    for thread in threads:
        thread.join()
    total += sum(r.value for r in tally.close_window(snapshot=False) if isinstance(r, Measurement))

    assert total == 20_000


def test_a_state_that_is_forgotten_is_reported_no_longer(tally: Tally):
    tally.set_state(metrics.REQUESTS_RUNNING, 13)
    tally.set_state(metrics.REQUESTS_WAITING, 23)
    tally.close_window(snapshot=False)

    tally.forget_state(metrics.REQUESTS_RUNNING)
    tally.forget_state(metrics.REQUESTS_RUNNING)

    assert [record.value for record in tally.close_window(snapshot=True)] == [23]
