"""How far a signal can be trusted: the documented rule, to the number and to the second."""

import pytest

from moescope.schemas.signals import Confidence, Evidence, make_signal


def confidence(observations: int, age_seconds: float, evidence: Evidence = Evidence.REQUESTS) -> Confidence:
    return make_signal(
        1.0, "1", age_seconds=age_seconds, observations=observations, evidence=evidence
    ).confidence


@pytest.mark.parametrize(
    ("observations", "age", "expected"),
    [
        (30, 30, Confidence.HIGH),
        (29, 30, Confidence.MEDIUM),
        (30, 31, Confidence.MEDIUM),
        (5, 120, Confidence.MEDIUM),
        (4, 0, Confidence.LOW),
        (1_000, 121, Confidence.LOW),
    ],
)
def test_enough_requests_and_fresh_enough(observations: int, age: float, expected: Confidence):
    assert confidence(observations, age) is expected


@pytest.mark.parametrize(
    ("windows", "expected"), [(3, Confidence.HIGH), (1, Confidence.MEDIUM), (0, Confidence.LOW)]
)
def test_windows_count_for_more_than_requests(windows: int, expected: Confidence):
    assert confidence(windows, 13, Evidence.WINDOWS) is expected


def test_no_value_has_no_age_and_no_confidence():
    signal = make_signal(None, "s", age_seconds=13, observations=79, evidence=Evidence.REQUESTS)
    assert (signal.value, signal.age_seconds, signal.observations) == (None, None, 0)
    assert signal.confidence is Confidence.NONE


def test_clock_that_is_ahead_makes_nothing_younger_than_now():
    assert make_signal(1.0, "s", age_seconds=-7, observations=79, evidence=Evidence.REQUESTS).age_seconds == 0
