"""The life of an alert, told by examples and compared with a reference that looks at the whole past."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moescope.alerting.alert_state import (
    FORGET_SECONDS,
    GAP_SECONDS,
    Change,
    Series,
    State,
    Timing,
    advance,
    rule_state,
)
from moescope.alerting.observation import Observation, Sample
from moescope.alerting.rule import NoData

HOT = (("expert", "347"), ("layer", "40"))
SCOPE = frozenset({("layer", "40")})


def active(value: float = 3.0) -> Observation:
    return Observation({HOT: Sample(HOT, value, True)}, says_what_it_sees=True)


def fine() -> Observation:
    return Observation({HOT: Sample(HOT, 1.0, False)}, says_what_it_sees=True)


def missing() -> Observation:
    return Observation({}, says_what_it_sees=True)


def looked_at() -> Observation:
    return Observation({}, (SCOPE,), says_what_it_sees=True)


def states(seen, timing: Timing, step: float = 30.0, known: dict[tuple, Series] | None = None):
    """The state of the one series after each observation; None stands for an evaluation that failed."""
    known = known or {}
    told = []
    for number, observation in enumerate(seen):
        if observation is not None:
            known, _ = advance(known, observation, number * step, timing)
        told.append(known[HOT].state.value if HOT in known else "inactive")
    return told


def test_an_alert_fires_at_once_without_for():
    assert states([fine(), active(), fine()], Timing()) == ["inactive", "firing", "inactive"]


def test_an_alert_is_pending_until_for_has_passed():
    told = states([active()] * 4, Timing(for_seconds=60))

    assert told == ["pending", "pending", "firing", "firing"]


def test_a_moment_without_the_condition_begins_for_anew():
    told = states([active(), active(), fine(), active(), active(), active()], Timing(for_seconds=60))

    assert told == ["pending", "pending", "inactive", "pending", "pending", "firing"]


def test_keep_firing_for_bridges_a_dip_and_then_ends():
    seen = [active(), fine(), active(), fine(), fine(), fine()]

    assert states(seen, Timing(keep_firing_seconds=60)) == [*["firing"] * 5, "inactive"]


def test_missing_data_are_a_state_of_their_own_and_the_alert_goes_on_where_they_return():
    told = states([active(), active(), missing(), missing(), active()], Timing(for_seconds=120))

    assert told == ["pending", "pending", "no_data", "no_data", "firing"]


def test_what_fires_and_goes_missing_is_still_told_and_remembered_for_an_hour():
    known, _ = advance({}, active(), 0, Timing())
    known, changes = advance(known, missing(), 30, Timing())

    assert changes == [Change(HOT, State.FIRING, State.NO_DATA)]
    assert known[HOT].is_firing
    known, _ = advance(known, missing(), FORGET_SECONDS[NoData.KEEP], Timing())
    assert HOT in known
    known, changes = advance(known, missing(), FORGET_SECONDS[NoData.KEEP] + 1, Timing())
    assert (known, changes) == ({}, [Change(HOT, State.NO_DATA, State.INACTIVE)])


def test_missing_data_can_count_as_fine():
    assert states([active(), missing()], Timing(no_data=NoData.OK)) == ["firing", "inactive"]


def test_missing_data_can_be_what_the_alert_is_about():
    timing = Timing(for_seconds=60, no_data=NoData.ALERT)

    assert states([fine(), missing(), missing(), missing(), fine()], timing) == [
        "inactive",
        "no_data",
        "no_data",
        "firing",
        "inactive",
    ]


def test_what_was_never_seen_is_not_missed():
    assert states([missing(), missing()], Timing(no_data=NoData.ALERT)) == ["inactive", "inactive"]


def test_a_row_that_leaves_labels_open_says_that_all_of_them_were_looked_at():
    assert states([active(), looked_at()], Timing()) == ["firing", "inactive"]


def test_a_rule_that_does_not_say_what_it_sees_misses_nothing():
    assert states([active(), Observation({})], Timing()) == ["firing", "inactive"]


def test_an_evaluation_that_fails_changes_nothing():
    told = states([active(), None, None, active(), None, fine()], Timing(for_seconds=90))

    assert told == ["pending", "pending", "pending", "firing", "firing", "inactive"]


def test_a_pending_alert_that_nobody_looked_at_for_an_hour_begins_anew():
    timing = Timing(for_seconds=60)
    known, _ = advance({}, active(), 0, timing)

    near, _ = advance(known, active(), GAP_SECONDS, timing)
    far, _ = advance(known, active(), GAP_SECONDS + 1, timing)

    assert (near[HOT].state, far[HOT].state) == (State.FIRING, State.PENDING)


def test_for_is_counted_from_when_the_alert_became_active_and_the_newest_value_is_kept():
    known, _ = advance({}, active(3.0), 1000, Timing(for_seconds=60))
    known, _ = advance(known, active(7.0), 1060, Timing(for_seconds=60))

    assert (known[HOT].active_at, known[HOT].fired_at, known[HOT].value) == (1000, 1060, 7.0)


def test_a_rule_is_what_its_worst_alert_is():
    def one(fired_at: float | None, *, is_missing: bool = False) -> Series:
        return Series(0, fired_at, 0, 0, is_missing=is_missing)

    assert rule_state({}) is State.INACTIVE
    assert rule_state({(("a", "1"),): one(None)}) is State.PENDING
    assert rule_state({(("a", "1"),): one(None), (("a", "2"),): one(None, is_missing=True)}) is State.NO_DATA
    assert rule_state({(("a", "1"),): one(3), (("a", "2"),): one(None, is_missing=True)}) is State.FIRING


STEP = 30.0
WORDS = {"active": active, "fine": fine, "missing": missing}
WORDS_OF_A_STEP = st.sampled_from(["active", "active", "active", "fine", "missing", "error"])
PASTS = st.lists(WORDS_OF_A_STEP, max_size=25)
TIMINGS = st.builds(
    Timing,
    for_seconds=st.sampled_from([0.0, 13.0, 30.0, 79.0, 120.0]),
    keep_firing_seconds=st.sampled_from([0.0, 23.0, 60.0, 90.0]),
    no_data=st.sampled_from(NoData),
)


def is_told(past: list[str], timing: Timing) -> bool:
    """Whether people are told of the alert at the end of a past, from the past alone.

    Missing data: ok reads them as fine, alert as active once the series was ever seen, and keep as if
    the evaluation had not been, like one that failed.
    """
    seen = [(place * STEP, word) for place, word in enumerate(past) if word != "error"]
    if timing.no_data is NoData.KEEP:
        seen = [(at, word) for at, word in seen if word != "missing"]
    elif timing.no_data is NoData.OK:
        seen = [(at, "fine" if word == "missing" else word) for at, word in seen]
    else:
        first = next((at for at, word in seen if word != "missing"), float("inf"))
        seen = [
            (at, word if word != "missing" else ("active" if at > first else "fine")) for at, word in seen
        ]
    told = False
    for is_active, stretch in itertools.groupby(seen, key=lambda one: one[1] == "active"):
        times = [at for at, _ in stretch]
        if is_active:
            told = told or times[-1] - times[0] >= timing.for_seconds
        elif times[-1] - times[0] >= timing.keep_firing_seconds:
            told = False
    return told


@given(past=PASTS, timing=TIMINGS)
def test_who_is_told_follows_from_the_past_alone(past: list[str], timing: Timing):
    known: dict = {}
    for place, word in enumerate(past):
        if word != "error":
            known, _ = advance(known, WORDS[word](), place * STEP, timing)

    assert (HOT in known and known[HOT].is_firing) == is_told(past, timing)


@given(past=PASTS, timing=TIMINGS)
def test_changes_tell_the_whole_story(past: list[str], timing: Timing):
    known: dict = {}
    told = State.INACTIVE
    for place, word in enumerate(past):
        if word == "error":
            continue
        known, changes = advance(known, WORDS[word](), place * STEP, timing)
        for change in changes:
            assert change.before == told != change.after
            told = change.after
        assert told == (known[HOT].state if HOT in known else State.INACTIVE)


@given(
    past=st.lists(st.sampled_from([*WORDS]), max_size=12),
    other=st.lists(st.sampled_from([*WORDS]), max_size=12),
)
def test_alerts_of_a_rule_do_not_touch_each_other(past: list[str], other: list[str]):
    cold = (("expert", "13"), ("layer", "2"))
    timing = Timing(for_seconds=60, keep_firing_seconds=30)
    alone: dict = {}
    both: dict = {}
    for place, word in enumerate(past):
        seen = WORDS[word]()
        alone, _ = advance(alone, seen, place * STEP, timing)
        samples = dict(seen.samples)
        if place < len(other) and other[place] != "missing":
            samples[cold] = Sample(cold, 2.0, other[place] == "active")
        both, _ = advance(both, Observation(samples, says_what_it_sees=True), place * STEP, timing)

        assert both.get(HOT) == alone.get(HOT)


@pytest.mark.parametrize("policy", NoData)
def test_arguments_are_left_as_they_are(policy: NoData):
    known, _ = advance({}, active(), 0, Timing(no_data=policy))
    before = dict(known)

    advance(known, missing(), 30, Timing(no_data=policy))

    assert known == before
