"""Shared instance ids, and clocks that are ahead."""

import pytest

from moescope.analysis.quality import Component, HealthState, InstanceHealth, judge_quality
from moescope.analysis.quality_findings import list_quality_findings

_WINDOW_S = 10


def _rank(
    rank: int,
    *,
    instance: str | None = None,
    from_s: float = 5,
    to_s: float = 790,
    state: str = "ok",
    group: str = "0",
) -> InstanceHealth:
    windows = max(round((to_s - from_s) / _WINDOW_S), 1)
    return InstanceHealth(
        *("fleet", instance or f"process-{group}-{rank}", Component.RANK, group, rank),
        *(round(from_s * 1000), round(to_s * 1000), 1.0, windows, 79, 0, 79, 79, 0, 0),
        HealthState(state),
    )


def _titles(*ranks: InstanceHealth) -> list[str]:
    return [finding.title for finding in list_quality_findings(judge_quality(ranks))]


def test_two_ranks_under_one_instance_id_are_named_together():
    quality = judge_quality([_rank(0), _rank(1, instance="same"), _rank(4, instance="same")])
    assert [[one.ep_rank for one in these] for these in quality.sharing_id] == [[1, 4]]
    assert not quality.is_believable
    assert _titles(*quality.instances) == ["Ranks 1 and 4 of fleet report under one instance id."]


def test_process_that_moved_to_another_rank_shares_no_id():
    """An EP group that came back in another order: one process was rank 1 until 390 s, then rank 4."""
    assert _titles(_rank(1, instance="same", to_s=390), _rank(4, instance="same", from_s=395)) == []


def test_one_id_in_two_deployments_is_nobodys_business():
    other = _rank(4, instance="same")
    other = InstanceHealth(**({name: getattr(other, name) for name in other.__slots__} | {"service": "east"}))
    assert judge_quality([_rank(1, instance="same"), other]).sharing_id == ()


def test_clock_ahead_of_its_group_is_named_with_its_lead():
    quality = judge_quality([_rank(0), _rank(1), _rank(2, to_s=790 + 180), _rank(3)])
    assert [(one.ep_rank, lead) for one, lead in quality.clock_leads] == [(2, 180.0)]
    assert not quality.is_believable
    assert _titles(*quality.instances) == ["The clock of rank 2 of fleet is about 3 min ahead."]


@pytest.mark.parametrize(("lead_s", "is_named"), [(29, False), (30, False), (31, True)])
def test_a_window_or_two_more_than_the_neighbours_is_no_wrong_clock(lead_s, is_named):
    quality = judge_quality([_rank(0), _rank(1), _rank(2, to_s=790 + lead_s, from_s=5 + lead_s)])
    assert bool(quality.clock_leads) is is_named


def test_ranks_with_long_windows_may_differ_by_more():
    long = [_rank(rank, from_s=300, to_s=6000) for rank in range(3)]
    long = [
        InstanceHealth(**({name: getattr(one, name) for name in one.__slots__} | {"windows": 10}))
        for one in long
    ]
    ahead = InstanceHealth(
        **({name: getattr(long[2], name) for name in long[2].__slots__} | {"last_ms": 6_600_000})
    )
    assert judge_quality([*long[:2], ahead]).clock_leads == ()


def test_rank_that_outlives_silent_neighbours_is_no_wrong_clock():
    silent = [_rank(rank, to_s=400, state="silent") for rank in (0, 1, 2)]
    assert judge_quality([*silent, _rank(3)]).clock_leads == ()


def test_of_two_ranks_that_disagree_neither_is_named():
    assert judge_quality([_rank(0), _rank(1, to_s=1000)]).clock_leads == ()
