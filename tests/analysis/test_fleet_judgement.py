"""What the Prometheus page says of a fleet is what the reports say of it. Embedded engine, known fleets."""

import dataclasses
import time

import numpy as np
import pytest

from moescope.analysis import report
from moescope.analysis.fleet_judge import FleetJudge
from moescope.analysis.fleet_judgement import _count_findings, judge_fleet
from moescope.analysis.fleet_looks import FOUND_BY_LOOKS
from moescope.analysis.quality import HealthState, InstanceHealth, judge_quality
from moescope.schemas.attributes import Component, Phase
from moescope.schemas.errors import StoreUnavailableError
from moescope.schemas.fleet import FindingKind, LookKind
from moescope.schemas.settings import Settings
from tests.analysis.known_workloads import KnownFleet

SETTINGS = Settings(fleet_page_window_seconds=900, fleet_page_hot_experts=3)
HOT = KnownFleet(service="hot", hot={(Phase.DECODE, 2, 13): 40.0, (Phase.DECODE, 3, 23): 5.0})
EVEN = KnownFleet(service="even", ep_group="blue", seed=13)
GONE = KnownFleet(service="gone")


@pytest.fixture(scope="module")
def end_s():
    """When the fleets' newest minute ends: up to two minutes ahead, so that nobody falls silent meanwhile."""
    return int(time.time()) // 60 * 60 + 120


@pytest.fixture(scope="module")
def store(known_store, end_s):
    ends = ((HOT, end_s), (EVEN, end_s), (GONE, end_s - 3_600))
    return known_store(*(dataclasses.replace(fleet, end_s=end) for fleet, end in ends))


@pytest.fixture(scope="module")
def judgement(store, end_s):
    return judge_fleet(store, SETTINGS, now_ms=end_s * 1000 + 30_000)


def count(judgement, kind: FindingKind, service: str) -> int:
    return sum(one.count for one in judgement.findings if (one.kind, one.service) == (kind, service))


def test_ratios_are_those_of_the_report(store, judgement):
    told = report.imbalance(store, window_seconds=900, settings=SETTINGS, service="hot").to_dict()
    reported = {
        (scope["phase"], layer["layer"]): layer["net_ratio"]
        for scope in told["scopes"]
        for layer in scope["layers"]
    }
    shown = {
        (one.phase.value, layer): ratio
        for one in judgement.balances
        if one.service == "hot"
        for layer, ratio in zip(one.layers.tolist(), one.net_ratio.tolist(), strict=True)
    }

    assert shown.keys() == reported.keys()
    assert len(shown) == 2 * HOT.num_layers
    assert shown == pytest.approx(reported, abs=0.01)


def test_shares_of_the_ranks_are_parts_of_one_whole(judgement):
    for one in judgement.balances:
        assert one.load_share.sum() == pytest.approx(1)
        assert one.ranks.tolist() == list(range(8))
    hot = next(one for one in judgement.balances if (one.service, one.phase) == ("hot", Phase.DECODE))
    assert int(np.argmax(hot.load_share)) == 13 * 8 // 64


def test_worst_hot_expert_of_all_deployments_comes_first_and_even_ones_have_none(judgement):
    listed = [(one.service, one.layer, one.expert) for one in judgement.hot_experts]

    assert listed[0] == ("hot", 2, 13)
    assert ("hot", 3, 23) in listed
    assert {service for service, _, _ in listed} == {"hot"}
    assert judgement.hot_experts[0].is_harmful
    assert len(listed) <= SETTINGS.fleet_page_hot_experts


def test_every_kind_of_finding_is_told_of_every_group_with_its_number(judgement):
    groups = {(one.service, one.ep_group) for one in judgement.findings}

    assert groups == {("hot", "0"), ("even", "blue")}
    assert len(judgement.findings) == 2 * len(set(FindingKind) - FOUND_BY_LOOKS)
    assert count(judgement, FindingKind.LAYER_IMBALANCED, "hot") == 1
    assert count(judgement, FindingKind.EXPERT_HARMFUL, "hot") >= 1
    assert sum(one.count for one in judgement.findings if one.service == "even") == 0


def test_processes_are_counted_by_what_is_wrong_with_them():
    def process(rank: int, state: HealthState, component=Component.RANK, *, last_ms: int = 61_000, group="0"):
        numbers = dict.fromkeys(
            ("windows", "tokens", "excluded_tokens", "assignments", "expected_assignments"), 13
        ) | {"missing_assignments": 0, "export_failures": 0, "lag_seconds": 7.0, "first_ms": 1_000}
        return InstanceHealth(
            service="fleet",
            instance=f"{component}-{rank}",
            component=component,
            ep_group=group,
            ep_rank=rank,
            last_ms=last_ms,
            state=state,
            **numbers,
        )

    quality = judge_quality(
        [
            process(0, HealthState.OK),
            process(1, HealthState.SILENT),
            process(2, HealthState.SILENT, last_ms=13_000),
            process(3, HealthState.NO_COUNTS),
            process(4, HealthState.NOT_CONSERVED),
            process(0, HealthState.SILENT, Component.FRONTEND),
            process(0, HealthState.OK, Component.SCRAPER, group="scraped"),
            process(0, HealthState.SILENT, group="gone", last_ms=13_000),
        ]
    )
    told = {
        (one.ep_group, one.kind): one.count
        for one in _count_findings([], quality, oldest_ms=23_000)
        if one.count
    }

    assert told == {
        ("0", FindingKind.SILENT_RANK): 2,
        ("0", FindingKind.SILENT_PROCESS): 1,
        ("0", FindingKind.RANK_WITHOUT_COUNTS): 1,
        ("0", FindingKind.RANK_NOT_CONSERVED): 1,
    }
    groups = {one.ep_group for one in _count_findings([], quality, oldest_ms=23_000)}
    assert groups == {"0", "scraped"}


def test_group_of_which_nothing_is_heard_any_more_is_not_judged(judgement):
    services = {one.service for one in (*judgement.balances, *judgement.findings)}

    assert "gone" not in services


def test_judge_tells_what_closer_looks_found_once_they_were_taken(store, end_s, monkeypatch):
    monkeypatch.setattr("moescope.analysis.fleet_judge.open_store", lambda dsn: store)
    judge = FleetJudge("", SETTINGS, clock_ms=lambda: end_s * 1000)
    assert judge.look_closer() is None, "no group is known yet"
    assert {one.kind for one in judge.judge().findings} == set(FindingKind) - FOUND_BY_LOOKS

    for _ in range(2 * len(LookKind)):
        assert judge.look_closer() is not None
    assert judge.look_closer() is None
    told = judge.judge()
    assert {(one.service, one.uncovered_share) for one in told.covers} == {("hot", 1.0), ("even", 1.0)}
    assert {(one.service, one.kind, one.count) for one in told.findings if one.kind in FOUND_BY_LOOKS} == {
        (service, FindingKind.FAILOVER_UNCOVERED, 0) for service in ("hot", "even")
    }, "of waits and memory nothing is stored"


def test_layer_with_too_few_tokens_has_a_ratio_and_no_net_one(store, end_s):
    strict = Settings(fleet_page_window_seconds=900, min_mean_rank_load=1e9)
    judged = judge_fleet(store, strict, now_ms=end_s * 1000)

    for one in judged.balances:
        assert np.isfinite(one.ratio).all()
        assert np.isnan(one.net_ratio).all()


def test_judge_opens_its_store_when_it_is_there_and_says_where_it_is_not(tmp_path):
    judge = FleetJudge(f"chdb://{tmp_path}/nothing", SETTINGS)

    with pytest.raises(StoreUnavailableError, match="no store at"):
        judge.judge()
    judge.close()
