"""Reading expert load back from a store: every count, in every tier, with the sums beside it."""

import numpy as np
import pytest

from moescope.analysis.clustering import sum_intervals
from moescope.analysis.expert_load import (
    HOURS,
    MINUTES,
    RAW,
    TEN_MINUTES,
    choose_tier,
    list_scopes,
    read_layer_history,
    read_window,
)
from moescope.analysis.placement import read_placement
from moescope.schemas.attributes import Phase
from moescope.schemas.settings import Settings
from tests.analysis.known_workloads import KnownFleet

SETTINGS = Settings()
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
NOW_MS = 1_800_000_000_000
FLEET = KnownFleet(minutes=7, sigma=0.5)
DECODE_ONLY = KnownFleet(service="decoder", ep_group="west", phases=(Phase.DECODE,), num_layers=2, minutes=2)


@pytest.fixture(scope="module")
def store(known_store):
    return known_store(FLEET, DECODE_ONLY)


def _scope(store, service=FLEET.service, phase=Phase.DECODE):
    return next(one for one in list_scopes(store) if (one.service, one.phase) == (service, phase))


def test_scopes_name_every_deployment_group_and_phase(store):
    scopes = list_scopes(store)
    assert [(one.service, one.ep_group, one.phase) for one in scopes] == [
        ("decoder", "west", Phase.DECODE),
        ("known-fleet", "0", Phase.DECODE),
        ("known-fleet", "0", Phase.PREFILL),
    ]
    assert [(one.layers, one.experts) for one in scopes] == [(2, 64), (5, 64), (5, 64)]


def test_scope_knows_its_first_and_last_minute(store):
    scope = _scope(store)
    assert scope.end_ms == FLEET.end_s * 1000
    assert scope.first_ms == (FLEET.end_s - 7 * 60) * 1000


@pytest.mark.parametrize("phase", list(Phase))
def test_window_holds_every_count_of_its_minutes(store, phase):
    window = read_window(store, _scope(store, phase=phase), 5 * 60, SETTINGS)
    counts = FLEET.counts(phase)[-5:]
    assert window.tier is MINUTES
    assert window.layers.tolist() == FLEET.layers.tolist()
    np.testing.assert_array_equal(window.tokens, counts.sum(axis=0))
    np.testing.assert_array_equal(window.sums.squares, sum_intervals(counts).squares)
    np.testing.assert_array_equal(window.sums.total_squares, sum_intervals(counts).total_squares)
    assert window.intervals.tolist() == [5] * 5


def test_short_window_is_read_from_the_single_windows_of_the_ranks(store):
    window = read_window(store, _scope(store), 2 * 60, SETTINGS)
    assert window.tier is RAW
    np.testing.assert_array_equal(window.tokens, FLEET.counts(Phase.DECODE)[-2:].sum(axis=0))
    assert window.intervals.tolist() == [2] * 5


@pytest.mark.parametrize("seconds", [0.001, 10, 59])
def test_window_of_less_than_a_minute_holds_the_newest_minute(store, seconds):
    window = read_window(store, _scope(store), seconds, SETTINGS)
    np.testing.assert_array_equal(window.tokens, FLEET.counts(Phase.DECODE)[-1])


def test_window_longer_than_the_data_starts_with_the_data(store):
    window = read_window(store, _scope(store), 3 * 3600, SETTINGS)
    assert window.seconds == 7 * 60
    np.testing.assert_array_equal(window.tokens, FLEET.counts(Phase.DECODE).sum(axis=0))


def test_window_that_ended_earlier_ends_there(store):
    end_ms = (FLEET.end_s - 60) * 1000
    window = read_window(store, _scope(store), 2 * 60, SETTINGS, end_ms=end_ms)
    np.testing.assert_array_equal(window.tokens, FLEET.counts(Phase.DECODE)[-3:-1].sum(axis=0))


def test_window_before_everything_that_is_stored_is_empty_and_as_long_as_asked(store):
    window = read_window(store, _scope(store), 5 * 60, SETTINGS, end_ms=1_000_000_000_000)
    assert (window.seconds, window.tokens.sum()) == (300, 0)


def test_window_is_read_only(store):
    window = read_window(store, _scope(store), 5 * 60, SETTINGS)
    with pytest.raises(ValueError, match="read-only"):
        window.tokens[0, 0] = 1


def test_layer_that_is_not_of_the_model_has_no_row(store):
    window = read_window(store, _scope(store), 5 * 60, SETTINGS)
    assert window.row_of_layer(3) == 2
    assert window.row_of_layer(0) is None


def test_history_of_a_layer_keeps_phases_and_minutes_apart(store):
    scope = _scope(store)
    history = read_layer_history(store, scope, 3, SETTINGS, start_ms=scope.first_ms, end_ms=scope.end_ms)
    assert history.interval_seconds == 60
    for phase in Phase:
        np.testing.assert_array_equal(history.tokens[phase], FLEET.counts(phase)[:, 2])
    first = np.datetime64(FLEET.end_s - 7 * 60, "s")
    np.testing.assert_array_equal(history.times[Phase.DECODE], first + np.arange(7) * np.timedelta64(60, "s"))


def test_history_of_a_phase_that_is_not_served_is_empty(store):
    scope = _scope(store, "decoder")
    history = read_layer_history(store, scope, 1, SETTINGS, start_ms=scope.first_ms, end_ms=scope.end_ms)
    assert len(history.times[Phase.PREFILL]) == 0
    assert len(history.times[Phase.DECODE]) == 2


def test_placement_is_the_newest_of_every_rank(store):
    placement = read_placement(store, read_window(store, _scope(store), 5 * 60, SETTINGS))
    assert placement.ep_size == 8
    assert placement.ranks.tolist() == list(range(8))
    assert placement.missing_ranks.tolist() == []
    np.testing.assert_array_equal(placement.replicas, FLEET.replicas())
    assert placement.ranks_of(0, 63).tolist() == [7]


def test_placement_is_unknown_before_its_first_snapshot(store):
    early = read_window(store, _scope(store), 60, SETTINGS, end_ms=(FLEET.end_s - 7 * 60) * 1000)
    assert read_placement(store, early) is None


@pytest.mark.parametrize(
    ("length_ms", "age_ms", "tier"),
    [
        (MINUTE_MS, MINUTE_MS, RAW),
        (3 * MINUTE_MS, 3 * MINUTE_MS, RAW),
        (15 * MINUTE_MS, 15 * MINUTE_MS, MINUTES),
        (6 * HOUR_MS, 6 * HOUR_MS, MINUTES),
        (DAY_MS, DAY_MS, TEN_MINUTES),
        (7 * DAY_MS, 7 * DAY_MS, HOURS),
        (MINUTE_MS, DAY_MS, MINUTES),
        (15 * MINUTE_MS, 5 * DAY_MS, TEN_MINUTES),
        (15 * MINUTE_MS, 50 * DAY_MS, HOURS),
    ],
)
def test_tier_is_the_finest_that_is_quick_and_still_kept(length_ms, age_ms, tier):
    start = NOW_MS - age_ms
    assert choose_tier(start, start + length_ms, NOW_MS, SETTINGS) is tier
