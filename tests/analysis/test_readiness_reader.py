"""What a store in which every number is known says to a readiness protocol."""

import dataclasses

import pytest

from moescope.analysis.readiness import judge_readiness
from moescope.analysis.readiness_check import CheckStatus
from moescope.analysis.readiness_protocol import ExpertMetric
from moescope.analysis.readiness_reader import read_evidence
from moescope.analysis.readiness_values import make_protocol
from moescope.analysis.store import open_store
from moescope.schemas.attributes import Phase
from moescope.schemas.errors import UsageError
from moescope.schemas.settings import Settings
from tests.analysis import known_telemetry as known
from tests.analysis.known_workloads import KnownFleet, this_minute_s

FLEET = KnownFleet(num_ranks=8, num_layers=3, minutes=5, hot={(Phase.DECODE, 2, 47): 40})
EVERYTHING = {
    "expert_placement": {"total_experts": FLEET.num_experts, "workers": 8, "failover_strategy": "block"},
    "load_balance_check": {},
    "partial_failure": {
        "worker_down": {"max_traffic_share": 0.2},
        "worker_slow": {"max_ttft": "10s", "max_tpot": "1s"},
        "router_down": {"max_request_share": 1},
    },
    "expert_metrics": {"max_age": "10m"},
    "memory": {"requests_that_fit": {"tokens": 1000}},
    "goodput": {"min_share": 0.6},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readiness") / "store"
    now = dataclasses.replace(FLEET, end_s=this_minute_s())
    opened = open_store(known.make_telemetry_store(folder, now))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def evidence(store):
    return read_evidence(store, make_protocol(EVERYTHING), Settings())


def test_every_number_is_read_from_every_rank(evidence):
    (group,) = evidence.groups
    everyone = set(range(FLEET.num_ranks))

    assert group.top_k == FLEET.top_k
    assert {*group.loads} == {Phase.PREFILL, Phase.DECODE}
    assert group.tokens_per_request == known.OUTPUT_TOKENS
    assert {*group.ages[ExpertMetric.ACTIVATION_COUNT]} == {0}, "the first rank counts for all"
    for metric in (ExpertMetric.LATENCY, ExpertMetric.MEMORY):
        assert {*group.ages[metric]} == everyone, metric
        assert all(-1 < age < 600 for age in group.ages[metric].values())
    assert group.ages[ExpertMetric.FAILOVER_COUNT]
    assert group.when_slow.ttft_seconds > 1
    assert group.when_slow.tpot_seconds > known.TPOT_SECONDS
    assert 0 < group.when_slow.token_share <= 1
    finished = FLEET.minutes * (known.GOOD_REQUESTS + known.SLOW_REQUESTS)
    assert [*evidence.requests_by_front_end.values()] == [finished]
    assert evidence.goodput.requests == finished


def test_the_planted_expert_and_the_full_pool_fail_and_the_rest_is_judged(evidence):
    readiness = judge_readiness(make_protocol(EVERYTHING), evidence, Settings())
    found = {(one.name, one.scope): one for one in readiness.checks}
    failed = {key for key, one in found.items() if one.status is CheckStatus.FAILED}

    assert ("hot_experts", "decode") in failed
    assert "expert 47" in found["hot_experts", "decode"].evidence
    assert ("hot_experts", "prefill") not in failed
    assert ("pools.kda_state", "") in failed
    assert "rank 7" in found["pools.kda_state", ""].evidence
    assert found["workers", ""].status is CheckStatus.PASSED
    assert found["failover_count", ""].evidence.startswith("The newest failover was counted by rank")
    assert found["min_share", ""].measured == 0.65
    assert found["router_down.max_request_share", ""].measured == 1


def test_who_is_not_there_is_said(store):
    protocol = make_protocol({"goodput": {}})

    with pytest.raises(UsageError, match="stored are: known-fleet"):
        read_evidence(store, dataclasses.replace(protocol, service="nobody"), Settings())
    with pytest.raises(UsageError, match="no EP group '7'; it has: 0"):
        read_evidence(store, dataclasses.replace(protocol, ep_group="7"), Settings())


def test_an_empty_store_is_no_pass(store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("moescope.analysis.readiness_reader.list_deployments", lambda _: ())

    with pytest.raises(UsageError, match="nothing can be checked"):
        read_evidence(store, make_protocol({"goodput": {}}), Settings())


def test_what_nobody_sends_is_not_checked_or_not_exported(store_of_requests):
    protocol = make_protocol(EVERYTHING)
    readiness = judge_readiness(protocol, read_evidence(store_of_requests, protocol, Settings()), Settings())
    found = {one.name: one for one in readiness.checks}
    unknown = {name for name, one in found.items() if one.status is CheckStatus.NOT_CHECKED}

    assert found["latency"].evidence == "No rank exports expert times."
    assert {"failover_count", "max_used_ratio", "requests_that_fit", "worker_slow"} <= unknown
    assert found["min_share"].status is CheckStatus.PASSED


@pytest.fixture
def store_of_requests(tmp_path, store):
    """A store of requests and expert load; the other is let go of, since an engine opens one at a time."""
    store.close()
    fleet = dataclasses.replace(FLEET, minutes=2)
    opened = open_store(known.make_telemetry_store(tmp_path / "store", fleet, (known.REQUESTS,)))
    yield opened
    opened.close()
