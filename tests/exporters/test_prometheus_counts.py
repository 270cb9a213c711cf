"""Windows added up: counters only rise, states are current, and what is silent leaves."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moescope.exporters.page_source import source_of
from moescope.exporters.prometheus_state import BucketedValue
from moescope.schemas import attributes as a
from moescope.schemas import metrics as m
from moescope.schemas.attributes import Component
from moescope.schemas.identity import EngineIdentity, ProcessIdentity
from moescope.schemas.page_metrics import DISPATCH_WAITED_FOR, RANK_STEP_TIME, RANK_STEPS, WINDOW_AGE
from moescope.schemas.records import Distribution, IndexedCounts, Measurement, Window
from moescope.schemas.topology import RankGrid
from tests.exporters.golden_pages import NOW_NS, TINY, page_counts, source

SECOND = 10**9
NO_LAYERS = np.empty(0, dtype=np.int64)


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def counts(clock: Clock):
    return page_counts(monotonic=clock, silent_after_seconds=60, forget_seconds=300)


def window(*records, end_ns: int = NOW_NS, seconds: float = 10) -> Window:
    return Window(end_ns - int(seconds * SECOND), end_ns, records)


def tokens(value: int, **attributes) -> Measurement:
    return Measurement(m.TOKENS, value, {a.PHASE: "decode", a.EXCLUDED: "none", **attributes})


def values(counts, metric) -> dict:
    """Value by label values, of one metric on the page."""
    found = [family for family in counts.snapshot() if family.metric.name == metric.name]
    return {sample.labels: sample.value for family in found for sample in family.samples}


def test_a_counter_rises_by_what_each_window_says(counts):
    counts.add(source(0), window(tokens(13)))
    counts.add(source(0), window(tokens(23)))
    counts.add(source(1), window(tokens(79)))

    assert values(counts, m.TOKENS) == {
        ("fleet", "0", "0", "decode", "none"): 36,
        ("fleet", "0", "1", "decode", "none"): 79,
    }


def test_a_restarted_rank_goes_on_in_the_same_series(counts):
    counts.add(source(0), window(tokens(13), Measurement(m.MEMORY_USAGE, 500, {a.POOL: "weights"})))
    counts.add(source(0, instance="after"), window(tokens(23)))

    assert values(counts, m.TOKENS) == {("fleet", "0", "0", "decode", "none"): 36}
    assert values(counts, m.MEMORY_USAGE) == {}, "what the process that ended said is no state any more"


def test_a_late_window_is_counted_and_says_nothing_about_now(counts):
    counts.add(source(0), window(Measurement(m.REQUESTS_RUNNING, 23), tokens(13)))
    late = window(Measurement(m.REQUESTS_RUNNING, 79), tokens(13), end_ns=NOW_NS - 60 * SECOND)
    counts.add(source(0), late)

    assert values(counts, m.REQUESTS_RUNNING) == {("fleet", "0", "0"): 23}
    assert values(counts, m.TOKENS) == {("fleet", "0", "0", "decode", "none"): 26}


def test_a_state_that_its_sender_no_longer_says_leaves_and_a_steady_one_stays(counts):
    limit = Measurement(m.MEMORY_LIMIT, 500, {a.POOL: "mla_kv_cache"})
    assert m.MEMORY_LIMIT.is_steady
    assert not m.REQUESTS_RUNNING.is_steady
    counts.add(source(0), window(Measurement(m.REQUESTS_RUNNING, 13), limit))
    counts.add(source(0), window(Measurement(m.REQUESTS_WAITING, 23)))
    assert list(values(counts, m.REQUESTS_RUNNING).values()) == [13], "the same window in two parts"

    counts.add(source(0), window(Measurement(m.REQUESTS_WAITING, 79), end_ns=NOW_NS + 10 * SECOND))

    assert values(counts, m.REQUESTS_RUNNING) == {}
    assert list(values(counts, m.REQUESTS_WAITING).values()) == [79]
    assert list(values(counts, m.MEMORY_LIMIT).values()) == [500]


def test_room_of_states_that_are_no_longer_said_is_free_again():
    counts = page_counts(max_series=13)
    for second in range(23):
        busy = Measurement(m.GPU_UTILIZATION, 0.79, {a.HW_ID: f"gpu-{second}"})
        assert counts.add(source(0), window(busy, end_ns=NOW_NS + second * SECOND)) == 0


def test_states_of_several_front_ends_of_an_engine_add_up_and_a_utilization_does_not(counts):
    for name, running in (("one", 13), ("two", 23)):
        who = source(0, component=Component.FRONTEND.value, instance=name)
        counts.add(who, window(Measurement(m.REQUESTS_RUNNING, running)))
    for component, busy in ((Component.RANK, 0.23), (Component.SCHEDULER, 0.79)):
        who = source(0, component=component.value)
        counts.add(who, window(Measurement(m.GPU_UTILIZATION, busy, {a.HW_ID: "gpu-13"})))

    assert values(counts, m.REQUESTS_RUNNING) == {("fleet", "0", "0"): 36}
    assert values(counts, m.GPU_UTILIZATION) == {("fleet", "0", "0", "gpu-13"): 0.79}


def test_waiting_is_told_of_who_waits_and_of_whom_he_waits_for(counts):
    def waits(*nanoseconds) -> Window:
        array = np.array([nanoseconds], dtype=np.int64)
        return window(IndexedCounts(m.DISPATCH_WAIT, NO_LAYERS, array, {a.STAGE: "dispatch"}))

    counts.add(source(0), waits(0, 13 * SECOND, 79 * SECOND))
    counts.add(source(1), waits(23 * SECOND, 0, 1 * SECOND))

    waited = values(counts, dataclasses.replace(m.DISPATCH_WAIT))
    assert waited == {
        ("fleet", "0", "0", "dispatch"): 92,
        ("fleet", "0", "1", "dispatch"): 24,
    }
    assert values(counts, DISPATCH_WAITED_FOR) == {
        ("fleet", "0", "0", "dispatch"): 23,
        ("fleet", "0", "1", "dispatch"): 13,
        ("fleet", "0", "2", "dispatch"): 80,
    }


def test_a_distribution_is_the_groups_and_its_sum_and_count_are_the_ranks(counts):
    bucket_counts = np.zeros(len(m.STEP_DURATION.bounds) + 1, dtype=np.int64)
    bucket_counts[[0, 5]] = 13, 10
    for rank in range(2):
        counts.add(
            source(rank), window(Distribution(m.STEP_DURATION, bucket_counts, 7.9, {a.PHASE: "decode"}))
        )

    (whole,) = values(counts, m.STEP_DURATION).values()
    assert whole == BucketedValue(tuple((2 * bucket_counts).tolist()), 15.8)
    assert set(values(counts, RANK_STEPS).values()) == {23}
    assert set(values(counts, RANK_STEP_TIME).values()) == {7.9}


def test_expert_failovers_are_there_before_the_first_one(counts):
    counts.add(source(0), window())

    assert values(counts, m.EXPERT_FAILOVERS) == {
        ("fleet", "0", reason.value): 0 for reason in a.FailoverReason
    }


def test_states_go_when_a_process_is_silent_and_everything_some_minutes_later(counts, clock):
    counts.add(source(0), window(tokens(13), Measurement(m.REQUESTS_RUNNING, 79)))
    clock.seconds = 61
    assert values(counts, m.REQUESTS_RUNNING) == {}
    assert list(values(counts, m.TOKENS).values()) == [13]
    assert list(values(counts, WINDOW_AGE)) == [("fleet", "0", "0")]

    clock.seconds = 301
    assert counts.snapshot() == ()


def test_windows_of_five_minutes_keep_their_states_and_their_sums(counts, clock):
    for number in range(1, 4):
        clock.seconds = 300 * number + 7 * (number - 1)
        running = Measurement(m.REQUESTS_RUNNING, 79)
        counts.add(source(0), window(tokens(13), running, end_ns=NOW_NS + 300 * number * SECOND, seconds=300))
        assert list(values(counts, m.TOKENS).values()) == [13 * number]
        clock.seconds += 301
        assert list(values(counts, m.REQUESTS_RUNNING).values()) == [79], "silent is who missed two windows"
    clock.seconds += 2.5 * 300

    assert counts.snapshot() == ()


def test_a_start_of_long_ago_keeps_nobody_on_the_page(counts, clock):
    """The cumulative state of a stock SDK starts with its process, and somebody may make a start up."""
    uptime = window(Measurement(m.REQUESTS_RUNNING, 79), seconds=10**6)
    counts.add(source(0), uptime)
    counts.add(source(0), window(*uptime.records, end_ns=NOW_NS + 10 * SECOND, seconds=10**6))
    clock.seconds = 61
    assert values(counts, m.REQUESTS_RUNNING) == {}

    counts.add(source(1), uptime)
    clock.seconds += 2.5 * 3600 + 1
    assert counts.snapshot() == ()


def test_parts_of_one_window_are_one_window(counts, clock):
    long = window(tokens(13), seconds=300)
    counts.add(source(0), long)
    counts.add(source(0), window(Measurement(m.REQUESTS_RUNNING, 79), seconds=300))
    clock.seconds = 700

    assert list(values(counts, m.REQUESTS_RUNNING).values()) == [79]


def test_a_rank_that_comes_back_after_it_was_forgotten_starts_at_zero(counts, clock):
    counts.add(source(0), window(tokens(13)))
    clock.seconds = 301
    counts.add(source(0), window(tokens(23)))

    assert list(values(counts, m.TOKENS).values()) == [23]


def test_age_of_a_rank_is_that_of_its_newest_window_and_never_negative(counts):
    counts.add(source(0), window(end_ns=NOW_NS - 23 * SECOND))
    counts.add(source(0), window(end_ns=NOW_NS - 13 * SECOND))
    counts.add(source(1), window(end_ns=NOW_NS + 79 * SECOND))

    assert values(counts, WINDOW_AGE) == {("fleet", "0", "0"): 13, ("fleet", "0", "1"): 0}


def test_series_beyond_the_limit_are_left_out_and_told_and_the_others_go_on():
    counts = page_counts(max_series=5)
    left_out = [
        counts.add(source(rank, service=f"stranger-{rank}"), window(tokens(13))) for rank in range(23)
    ]

    assert left_out[0] == 0
    assert sum(left_out) > 0
    assert sum(family.num_series for family in counts.snapshot()) == 5
    assert counts.add(source(0, service="stranger-0"), window(tokens(13))) == 0
    assert values(counts, m.TOKENS)["stranger-0", "0", "0", "decode", "none"] == 26


def test_room_of_what_was_forgotten_is_free_again(clock):
    counts = page_counts(monotonic=clock, max_series=40, forget_seconds=300)
    full = Distribution(m.TIME_TO_FIRST_TOKEN, np.ones(21, dtype=np.int64), 13.0)
    for start in range(23):
        clock.seconds = start * 301
        assert counts.add(source(0, service=f"run-{start}"), window(tokens(13), full)) == 0


def test_who_reports_is_read_from_its_resource_attributes():
    engine = EngineIdentity("fleet", TINY, RankGrid("blue", 3, 8), instance="one")
    scheduler = ProcessIdentity("fleet", Component.SCHEDULER, grid=RankGrid("blue", 3, 8), instance="two")

    first, second = (source_of(who.resource_attributes()) for who in (engine, scheduler))
    assert first.rank == second.rank == ("fleet", "blue", "3")
    assert first.process != second.process
    assert source_of({}).rank == ("", "0", "0")
    assert len(source_of({a.SERVICE_NAME: "x" * 10_000}).service) == 256


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 10**6), st.integers(0, 120)), max_size=30))
def test_no_counter_ever_falls(windows):
    counts = page_counts()
    last: dict = {}
    for rank, value, late_seconds in windows:
        counts.add(source(rank), window(tokens(value), end_ns=NOW_NS - late_seconds * SECOND))
        now = values(counts, m.TOKENS)
        assert all(now[labels] >= before for labels, before in last.items())
        last = now
    assert sum(last.values()) == sum(value for _, value, _ in windows)
