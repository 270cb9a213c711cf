"""When closer looks are taken, and for how long they are told of."""

import pytest

from moescope.analysis import fleet_judge
from moescope.analysis.fleet_judge import FleetJudge
from moescope.analysis.fleet_looks import Look
from moescope.schemas.errors import StoreUnavailableError
from moescope.schemas.fleet import AwaitedRank, FindingCount, FindingKind, FleetJudgement, LookKind
from moescope.schemas.settings import Settings

SETTINGS = Settings(fleet_page_look_seconds=60, fleet_page_forget_seconds=300)


class World:
    """A fleet and a clock: groups that are there, looks that were taken, and whether the store answers."""

    def __init__(self) -> None:
        self.now_s = 1_796_000_000
        self.groups = [("fleet", "0")]
        self.taken: list[tuple[str, str, LookKind]] = []
        self.failing: set[LookKind] = set()
        self.judge = FleetJudge("", SETTINGS, clock_ms=lambda: self.now_s * 1000)

    def judge_fleet(self, store, settings, *, now_ms):
        counts = (FindingCount(*group, FindingKind.SILENT_RANK, 0) for group in self.groups)
        return FleetJudgement(findings=tuple(counts))

    def take_look(self, store, kind, service, ep_group, settings):
        self.taken.append((service, ep_group, kind))
        if kind in self.failing:
            raise StoreUnavailableError("nobody answers")
        return Look(
            awaited=(AwaitedRank(service, ep_group, len(self.taken), kind.value, 3.7),),
            findings={FindingKind.STRAGGLER: 1} if kind is LookKind.STRAGGLERS else {},
        )

    def look_at_all(self) -> list[LookKind]:
        kinds = []
        while (kind := self.judge.look_closer()) is not None:
            kinds.append(kind)
        return kinds

    def told(self) -> list[str]:
        return [one.kind for one in self.judge.judge().awaited]


@pytest.fixture
def world(monkeypatch):
    made = World()
    monkeypatch.setattr(fleet_judge, "open_store", lambda dsn: None)
    monkeypatch.setattr(fleet_judge, "judge_fleet", made.judge_fleet)
    monkeypatch.setattr(fleet_judge, "take_look", made.take_look)
    return made


def test_every_look_is_taken_once_a_beat_and_the_dear_one_ten_times_as_seldom(world):
    world.judge.judge()
    assert world.look_at_all() == list(LookKind)
    for minute in range(1, 23):
        world.now_s += 60
        expected = set(LookKind) if minute % 10 == 0 else set(LookKind) - {LookKind.REPLAN}
        assert set(world.look_at_all()) == expected


def test_one_call_takes_one_look_at_one_group(world):
    world.groups = [("fleet", "0"), ("fleet", "1"), ("other", "0")]
    world.judge.judge()
    world.judge.look_closer()

    assert len(world.taken) == 1
    world.look_at_all()
    assert sorted(world.taken) == sorted((*group, kind) for group in world.groups for kind in LookKind)


def test_what_a_look_found_is_told_until_the_next_one(world):
    world.judge.judge()
    world.look_at_all()
    world.now_s += 59

    told = world.judge.judge()
    assert [one.kind for one in told.awaited] == ["failover", "memory", "replan", "stragglers"]
    assert {one.kind: one.seconds for one in told.look_ages} == dict.fromkeys(LookKind, 59.0)
    assert [one.kind for one in told.findings] == [FindingKind.SILENT_RANK, FindingKind.STRAGGLER]
    ranks = {one.ep_rank for one in told.awaited}
    world.now_s += 1
    world.look_at_all()
    assert len(ranks & {one.ep_rank for one in world.judge.judge().awaited}) == 1, "that of the dear look"


def test_group_that_is_gone_is_told_of_no_more_and_new_when_it_comes_back(world):
    world.judge.judge()
    world.look_at_all()
    world.groups = []
    assert world.told() == []

    world.groups = [("fleet", "0")]
    assert world.told() == []
    assert world.look_at_all() == list(LookKind)


def test_look_that_fails_for_long_is_told_of_no_more_and_holds_up_no_other(world):
    world.judge.judge()
    world.look_at_all()
    world.failing = {LookKind.STRAGGLERS}
    for minute in range(1, 8):
        world.now_s += 60
        with pytest.raises(StoreUnavailableError):
            world.look_at_all()
        assert LookKind.MEMORY in world.look_at_all()
        assert ("stragglers" in world.told()) == (minute <= 5)
    world.failing = set()
    world.now_s += 60
    world.look_at_all()
    assert "stragglers" in world.told()
