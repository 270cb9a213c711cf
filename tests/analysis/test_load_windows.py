"""Windows side by side: every count in its window, zeros where nothing is stored, and no half-filled end."""

import clickhouse_connect
import numpy as np
import pytest

from moescope.analysis.expert_load import HOURS, MINUTES, RAW, TEN_MINUTES, list_scopes
from moescope.analysis.load_windows import choose_window_tier, read_load_windows
from moescope.schemas.attributes import Phase
from moescope.schemas.errors import UsageError
from moescope.schemas.settings import Settings
from tests.analysis.known_workloads import KnownFleet, make_store, write_fleet

SETTINGS = Settings()
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
NOW_MS = 1_800_000_000_000
FLEET = KnownFleet(minutes=7, sigma=0.5)
LATE_RANK = KnownFleet(service="late-rank", minutes=4, num_layers=2, phases=(Phase.DECODE,))


def _make_store(path, *fleets):
    """The known fleets, and one whose second rank has not told its newest minute yet."""
    dsn = make_store(path, *fleets)
    client = clickhouse_connect.get_client(dsn=dsn, database=SETTINGS.database)
    write_fleet(client, LATE_RANK)
    earlier = KnownFleet(
        service="late-rank", minutes=3, num_layers=2, phases=(Phase.DECODE,), end_s=LATE_RANK.end_s - 60
    )
    write_fleet(client, earlier, counting_rank=1)
    client.close()
    return dsn


@pytest.fixture(scope="module")
def store(either_store):
    return either_store(FLEET, make=_make_store)


def _scope(store, service=FLEET.service, phase=Phase.DECODE):
    return next(one for one in list_scopes(store) if (one.service, one.phase) == (service, phase))


def _read(store, scope=None, **changes):
    options = {"window_seconds": 60, "count": 7, "settings": SETTINGS} | changes
    return read_load_windows(store, scope or _scope(store), **options)


@pytest.mark.parametrize("phase", list(Phase))
def test_each_minute_is_a_window_with_every_count(store, phase):
    windows = _read(store, _scope(store, phase=phase))
    assert windows.tier is MINUTES
    assert windows.layers.tolist() == FLEET.layers.tolist()
    np.testing.assert_array_equal(windows.tokens, FLEET.counts(phase))
    assert windows.starts_ms.tolist() == [(FLEET.end_s - 60 * ago) * 1000 for ago in range(7, 0, -1)]
    assert windows.end_ms == FLEET.end_s * 1000
    assert not windows.is_missing.any()


def test_longer_windows_hold_the_sums_of_their_minutes(store):
    windows = _read(store, window_seconds=180, count=2)
    counts = FLEET.counts(Phase.DECODE)
    np.testing.assert_array_equal(windows.tokens, [counts[1:4].sum(axis=0), counts[4:].sum(axis=0)])
    assert windows.seconds == 180


def test_windows_that_no_minute_divides_come_from_the_windows_of_the_ranks(store):
    windows = _read(store, window_seconds=90, count=4)
    assert windows.tier is RAW
    assert windows.tokens.sum() == FLEET.counts(Phase.DECODE)[1:].sum()


def test_short_windows_come_from_the_windows_of_the_ranks(store):
    windows = _read(store, count=2)
    assert windows.tier is RAW
    np.testing.assert_array_equal(windows.tokens, FLEET.counts(Phase.DECODE)[-2:])


def test_windows_from_before_the_data_are_zeros_and_say_that_they_are_missing(store):
    windows = _read(store, count=9)
    assert windows.is_missing.tolist() == [True, True, *[False] * 7]
    assert not windows.tokens[:2].any()
    np.testing.assert_array_equal(windows.present().tokens, FLEET.counts(Phase.DECODE))
    assert windows.present().starts_ms.tolist() == windows.starts_ms[2:].tolist()


def test_windows_end_where_they_are_asked_to(store):
    windows = _read(store, count=4, end_ms=(FLEET.end_s - 60) * 1000)
    np.testing.assert_array_equal(windows.tokens, FLEET.counts(Phase.DECODE)[-5:-1])


def test_windows_end_at_whole_minutes(store):
    windows = _read(store, count=4, end_ms=(FLEET.end_s - 30) * 1000)
    np.testing.assert_array_equal(windows.tokens, FLEET.counts(Phase.DECODE)[-5:-1])


def test_last_window_is_the_newest_that_every_rank_has_reported(store):
    windows = _read(store, _scope(store, "late-rank"), count=4)
    assert windows.end_ms == (LATE_RANK.end_s - 60) * 1000
    each = LATE_RANK.tokens_per_minute * LATE_RANK.top_k
    assert windows.tokens.sum(axis=(1, 2)).tolist() == [0, 4 * each, 4 * each, 4 * each]


def test_windows_are_read_only(store):
    with pytest.raises(ValueError, match="read-only"):
        _read(store).tokens[0, 0, 0] = 1


@pytest.mark.parametrize(("seconds", "count"), [(0, 3), (60, 0)])
def test_no_windows_are_wrong_use(store, seconds, count):
    with pytest.raises(UsageError, match="no stretch of time"):
        _read(store, window_seconds=seconds, count=count)


@pytest.mark.parametrize(
    ("window_ms", "length_ms", "tier"),
    [
        (MINUTE_MS, 3 * MINUTE_MS, RAW),
        (MINUTE_MS, HOUR_MS, MINUTES),
        (10_000, HOUR_MS, RAW),
        (10 * MINUTE_MS, DAY_MS, TEN_MINUTES),
        (15 * MINUTE_MS, DAY_MS, MINUTES),
        (HOUR_MS, 7 * DAY_MS, HOURS),
        (30 * MINUTE_MS, 7 * DAY_MS, TEN_MINUTES),
        (2 * HOUR_MS, 60 * DAY_MS, HOURS),
    ],
)
def test_table_is_the_one_that_is_quick_or_the_next_finer_that_divides_the_windows(
    window_ms, length_ms, tier
):
    assert choose_window_tier(NOW_MS - length_ms, NOW_MS, window_ms, NOW_MS, SETTINGS) is tier


def test_windows_that_no_kept_table_divides_name_the_way_out():
    with pytest.raises(UsageError, match=r"900 s .* 5 days back: .* steps of 10 min .* whole multiples"):
        choose_window_tier(NOW_MS - 5 * DAY_MS, NOW_MS, 15 * MINUTE_MS, NOW_MS, SETTINGS)
