"""Who stopped to report while the others of the group went on."""

import pytest

from moescope.analysis.quality import Component, HealthState, InstanceHealth, judge_quality
from moescope.analysis.silent_ranks import describe_silent_ranks, list_silent_ranks
from moescope.schemas.settings import Settings

SETTINGS = Settings(silent_after_seconds=60)


def _rank(rank: int, last_s: int, state: str, group: str = "0") -> InstanceHealth:
    return InstanceHealth(
        *("fleet", f"process-{group}-{rank}", Component.RANK, group, rank, 0, last_s * 1000),
        *(1.0, 13, 79, 0, 79, 79, 0, 0),
        HealthState(state),
    )


def test_rank_is_silent_where_others_go_on():
    quality = judge_quality([_rank(0, 900, "ok"), _rank(1, 839, "silent"), _rank(2, 100, "silent", "east")])
    assert list_silent_ranks(quality, "0", SETTINGS) == (1,)
    assert list_silent_ranks(quality, "east", SETTINGS) == (), "nobody of its group went on"


def test_fleet_that_ended_as_a_whole_has_no_silent_ranks():
    quality = judge_quality([_rank(0, 900, "silent"), _rank(1, 840, "silent"), _rank(2, 500, "silent")])
    assert list_silent_ranks(quality, "0", SETTINGS) == (2,)


@pytest.mark.parametrize(
    ("ranks", "said"),
    [((7,), "Rank 7 is silent and may be dead"), ((3, 13), "Ranks 3 and 13 are silent and may be dead")],
)
def test_one_and_several_are_named(ranks: tuple[int, ...], said: str):
    assert describe_silent_ranks(ranks) == said
