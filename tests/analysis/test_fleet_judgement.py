"""What the Prometheus page says of a fleet is what the reports say of it. Embedded engine, known fleets."""

import time

import numpy as np
import pytest

from moescope.analysis import report
from moescope.analysis.fleet_judgement import FleetJudge, judge_fleet
from moescope.schemas.attributes import Phase
from moescope.schemas.errors import StoreUnavailableError
from moescope.schemas.fleet import FindingKind
from moescope.schemas.settings import Settings
from tests.analysis.known_workloads import KnownFleet

SETTINGS = Settings(fleet_page_window_seconds=900, fleet_page_hot_experts=3)
# Up to two minutes ahead: nobody falls silent while the tests run.
END_S = int(time.time()) // 60 * 60 + 120
HOT = KnownFleet(service="hot", end_s=END_S, hot={(Phase.DECODE, 2, 13): 40.0, (Phase.DECODE, 3, 23): 5.0})
EVEN = KnownFleet(service="even", ep_group="blue", end_s=END_S, seed=13)
GONE = KnownFleet(service="gone", end_s=END_S - 3_600)


@pytest.fixture(scope="module")
def store(known_store):
    return known_store(HOT, EVEN, GONE)


@pytest.fixture(scope="module")
def judgement(store):
    return judge_fleet(store, SETTINGS, now_ms=HOT.end_s * 1000 + 30_000)


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
    assert len(judgement.findings) == 2 * len(FindingKind)
    assert count(judgement, FindingKind.LAYER_IMBALANCED, "hot") == 1
    assert count(judgement, FindingKind.EXPERT_HARMFUL, "hot") >= 1
    assert sum(one.count for one in judgement.findings if one.service == "even") == 0


def test_group_of_which_nothing_is_heard_any_more_is_not_judged(judgement):
    services = {one.service for one in (*judgement.balances, *judgement.findings)}

    assert "gone" not in services


def test_layer_with_too_few_tokens_has_a_ratio_and_no_net_one(store):
    strict = Settings(fleet_page_window_seconds=900, min_mean_rank_load=1e9)
    judged = judge_fleet(store, strict, now_ms=HOT.end_s * 1000)

    for one in judged.balances:
        assert np.isfinite(one.ratio).all()
        assert np.isnan(one.net_ratio).all()


def test_judge_opens_its_store_when_it_is_there_and_says_where_it_is_not(tmp_path):
    judge = FleetJudge(f"chdb://{tmp_path}/nothing", SETTINGS)

    with pytest.raises(StoreUnavailableError, match="no store at"):
        judge.judge()
    judge.close()
