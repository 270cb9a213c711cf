"""Which stretch of time a page looks at."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moescope.analysis.expert_load import LoadScope
from moescope.analysis.span import Deployment, Reporters, choose_step, cover, merge_deployments, span_between
from moescope.schemas.attributes import Phase

MINUTE_MS = 60_000
DEPLOYMENT = Deployment("fleet", ("0",), 13 * MINUTE_MS, 79 * MINUTE_MS, 79 * MINUTE_MS - 20_000)


def _process(service, first_ms, last_ms, group="0"):
    return Reporters(service, group, first_ms, last_ms)


def test_span_ends_with_the_newest_minute_and_is_covered_until_the_newest_window():
    span = cover(DEPLOYMENT, 23 * 60)
    assert (span.start_ms, span.end_ms) == (56 * MINUTE_MS, 79 * MINUTE_MS)
    assert span.seconds == 23 * 60 - 20


def test_span_does_not_reach_beyond_what_is_stored():
    assert cover(DEPLOYMENT, 86_400).start_ms == DEPLOYMENT.first_ms


@pytest.mark.parametrize("seconds", [0.001, 10, 59])
def test_span_of_less_than_a_minute_is_the_newest_minute(seconds):
    assert cover(DEPLOYMENT, seconds).start_ms == 78 * MINUTE_MS


def test_span_held_still_ends_where_it_was_held():
    span = cover(DEPLOYMENT, 7 * 60, end_ms=40 * MINUTE_MS)
    assert (span.start_ms, span.end_ms, span.seconds) == (33 * MINUTE_MS, 40 * MINUTE_MS, 420)


@given(st.integers(1, 8 * 86_400))
def test_a_figure_never_has_more_than_a_few_hundred_steps(seconds):
    step = choose_step(seconds * 1000)
    assert seconds / step <= 400
    assert step % 60 == 0


def test_running_step_counts_only_the_time_that_it_has_run():
    span = cover(DEPLOYMENT, 3 * 60)
    times = np.array([76, 77, 78], dtype=np.int64) * MINUTE_MS
    assert span.seconds_of_steps(times.astype("datetime64[ms]")).tolist() == [60, 60, 40]


def test_span_of_a_window_starts_with_a_whole_step():
    assert span_between("fleet", "0", MINUTE_MS + 7, 3 * MINUTE_MS).start_ms == MINUTE_MS


def test_deployment_is_known_by_its_processes_alone():
    (only,) = merge_deployments(
        [], [_process("scraped", 61_000, 125_000), _process("scraped", 1_000, 70_000)]
    )
    assert only == Deployment("scraped", ("0",), 0, 3 * MINUTE_MS, 125_000)


def test_deployment_of_both_has_the_groups_of_both():
    scope = LoadScope("fleet", "east", Phase.DECODE, 64, 5, 0, 2 * MINUTE_MS)
    (both,) = merge_deployments([scope], [_process("fleet", MINUTE_MS, 179_000, group="west")])
    assert both == Deployment("fleet", ("east", "west"), 0, 3 * MINUTE_MS, 179_000)


def test_deployment_whose_processes_are_long_gone_is_covered_until_its_last_minute():
    scope = LoadScope("old", "0", Phase.DECODE, 64, 5, 0, 2 * MINUTE_MS)
    (old,) = merge_deployments([scope], [])
    assert old.last_ms == old.end_ms == 2 * MINUTE_MS


@pytest.mark.parametrize("seconds", [300, 900, 3600, 21_600, 86_400, 604_800])
def test_start_of_a_span_is_a_whole_step(seconds):
    span = cover(DEPLOYMENT, seconds)
    assert span.start_ms % (span.step_seconds * 1000) == 0
