"""Times as people read them: in their own zone, with UTC beside it."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from moescope.dashboard import labels


@pytest.fixture
def in_zone(monkeypatch):
    return lambda name: monkeypatch.setattr(labels, "viewer_zone", lambda: ZoneInfo(name))


def test_utc_stands_beside_the_viewers_time(in_zone):
    in_zone("Europe/Berlin")
    assert labels.time_label(datetime(2026, 11, 29, 13, 3, 20, tzinfo=UTC)) == "14:03:20 (13:03:20 UTC)"


def test_day_of_utc_is_named_where_it_is_another(in_zone):
    in_zone("Europe/Berlin")
    assert (
        labels.time_label(datetime(2026, 11, 29, 23, 3, 20, tzinfo=UTC)) == "00:03:20 (23:03:20 UTC 29 Nov)"
    )


def test_viewer_in_utc_reads_one_time(in_zone):
    in_zone("UTC")
    assert labels.time_label(datetime(2026, 11, 29, 23, 3, 20, tzinfo=UTC)) == "23:03:20 UTC"


def test_axis_of_time_is_shifted_to_the_viewers_zone(in_zone):
    in_zone("Asia/Kolkata")
    times = np.array(["2026-11-29T18:29", "2026-11-29T18:30"], "datetime64[ms]")
    assert labels.local_times(times).astype(str).tolist() == [
        "2026-11-29T23:59:00.000",
        "2026-11-30T00:00:00.000",
    ]
    assert labels.zone_title() == "Time (Asia/Kolkata)"
