"""A prefix cache that finds much less than before."""

import numpy as np
import pytest

from moescope.analysis.prefix_cache import PrefixCache
from moescope.analysis.prefix_cache_findings import (
    describe_cache_fall,
    measure_cache_fall,
    read_prefix_cache_findings,
)
from moescope.analysis.span import Span
from moescope.schemas.errors import StoreUnavailableError
from moescope.schemas.settings import Settings

SETTINGS = Settings(prefix_cache_fall_ratio=0.5)
MINUTES = 30
SPAN = Span("fleet", "", 0, MINUTES * 60_000, MINUTES * 60_000, 60)


def _cache(found_per_minute, looked_up=10_000):
    found = np.array(found_per_minute)
    times = (np.arange(MINUTES) * 60_000).astype("datetime64[ms]")
    zeros, total = np.zeros(MINUTES, dtype=np.int64), np.full(MINUTES, looked_up)
    return PrefixCache(times, found, zeros, total - found, np.full(MINUTES, 60.0))


def _fall(before, now, **arguments):
    return measure_cache_fall(_cache([before] * 25 + [now] * 5, **arguments), SPAN, 900, SETTINGS)


def test_cache_that_finds_a_tenth_of_what_it_found_has_fallen():
    fall = _fall(6_000, 600)
    assert (fall.before, fall.now, fall.looked_up) == (0.6, 0.06, 50_000)
    assert (fall.now_seconds, fall.before_seconds) == (300, 1500)
    assert fall.times_work == pytest.approx(0.94 / 0.4)
    (finding,) = describe_cache_fall(fall, SPAN)
    assert finding.title == "The prefix cache finds 6.0 % of the prompt tokens; it was 60 %."
    assert "2.3 × as many tokens" in finding.detail


@pytest.mark.parametrize(("now", "has_fallen"), [(2_999, True), (3_000, False)])
def test_exactly_half_of_before_is_no_fall(now, has_fallen):
    assert (_fall(6_000, now) is not None) is has_fallen


def test_cache_that_never_found_much_has_nothing_to_lose():
    assert _fall(999, 0) is None


def test_few_tokens_decide_nothing():
    assert _fall(6, 0, looked_up=10) is None
    assert _fall(1_200, 0, looked_up=1_999) is None, "9 995 tokens in the newest five minutes"
    assert _fall(1_200, 0, looked_up=2_001) is not None


def test_short_window_compares_its_newest_third():
    assert measure_cache_fall(_cache([6_000] * 28 + [600] * 2), SPAN, 360, SETTINGS).now_seconds == 120


def test_reading_covers_as_much_before_the_window_as_is_in_it():
    asked = []

    class Recorder:
        def query(self, name, **params):
            asked.append((name, params["start_ms"], params["end_ms"]))
            raise StoreUnavailableError(name)

    span = Span("fleet", "", 900_000, 1_800_000, 1_800_000, 60)
    with pytest.raises(StoreUnavailableError):
        read_prefix_cache_findings(Recorder(), span, SETTINGS)
    assert asked == [("prefix_cache", 0, 1_800_000)]
