import numpy as np
import pytest

from moescope.planning.stored_load import Whose, read_stored_load
from moescope.schemas.attributes import Phase
from moescope.schemas.errors import UsageError
from moescope.schemas.settings import Settings
from tests.analysis.known_workloads import KnownFleet

BUSY = KnownFleet(service="busy", minutes=6, sigma=0.5, num_layers=3, num_experts=13, num_ranks=4)
TWO = [KnownFleet(service="two", ep_group=group, minutes=2, num_layers=2) for group in "ab"]
MINUTE = {"window_seconds": 60.0, "count": 6}


@pytest.fixture(scope="module")
def store(either_store):
    return either_store(BUSY, *TWO)


def read(store, service="busy", ep_group=None, phase=None, **windows):
    whose = Whose(service=service, ep_group=ep_group, phase=phase)
    return read_stored_load(store, Settings(), whose, **(MINUTE | windows))


def test_both_phases_are_added_window_by_window(store):
    load = read(store)

    assert load.tokens.tolist() == (BUSY.counts(Phase.PREFILL) + BUSY.counts(Phase.DECODE)).tolist()
    assert load.layers.tolist() == [1, 2, 3]
    assert load.is_counts
    assert load.is_forecast_fair
    assert load.source.startswith("busy, EP group 0, prefill and decode: 6 windows of 60 s to ")


def test_one_phase_is_read_alone(store):
    assert read(store, phase="decode").tokens.tolist() == BUSY.counts(Phase.DECODE).tolist()


def test_the_placement_that_ranks_report_is_where_the_plan_starts(store):
    current = read(store).current

    held = current.replicas_per_rank_layer_expert()
    assert held.tolist() == BUSY.replicas().tolist()


def test_windows_end_at_the_time_that_is_asked_for_and_say_so(store):
    end_ms = (BUSY.end_s - 2 * 60) * 1000
    load = read(store, count=3, end_ms=end_ms)

    assert load.end_ms == end_ms
    counted = BUSY.counts(Phase.PREFILL) + BUSY.counts(Phase.DECODE)
    assert load.tokens.tolist() == counted[1:4].tolist()


def test_end_of_the_newest_windows_is_known(store):
    assert read(store).end_ms == BUSY.end_s * 1000


def test_independent_tokens_have_a_design_effect_near_1(store):
    assert np.all(read(store).design_effect < 1.5)


def test_windows_from_before_the_first_are_left_out_aloud(store):
    load = read(store, count=9)

    assert len(load.tokens) == 6
    assert load.notes == ("Of 3 windows out of 9 nothing is stored: left out.",)


@pytest.mark.parametrize(
    ("whose", "words"),
    [
        ({"service": None}, r"--service busy --ep-group 0; --service two --ep-group a; .*--ep-group b"),
        ({"service": "two"}, r"--ep-group a; --service two --ep-group b"),
        ({"service": "none"}, r"no such .* busy 0 decode, busy 0 prefill"),
    ],
)
def test_a_plan_is_for_one_group_and_the_others_are_named(store, whose, words):
    with pytest.raises(UsageError, match=words):
        read(store, **whose)


def test_an_empty_store_says_where_load_comes_from(store, monkeypatch):
    monkeypatch.setattr("moescope.planning.stored_load.list_scopes", lambda _: ())

    with pytest.raises(UsageError, match=r"moescope simulate.*--from-counts"):
        read(store)
