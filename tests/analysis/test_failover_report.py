"""What would be lost, from a store to the terminal and to JSON, in known odd amounts."""

import json
from dataclasses import replace

import clickhouse_connect
import numpy as np
import pytest
from jsonschema import Draft202012Validator

from moescope.analysis import failover_answer, report
from moescope.analysis.expert_load import list_scopes
from moescope.analysis.failover_facts import read_failover_facts
from moescope.analysis.failover_impact import FailoverStrategy
from moescope.analysis.partial_failure_times import read_pass_times
from moescope.analysis.store import open_store
from moescope.schemas.attributes import Phase
from moescope.schemas.errors import UsageError
from moescope.schemas.report_schema import read_report_schema
from moescope.schemas.settings import Settings
from tests.analysis import known_telemetry as known
from tests.analysis.known_workloads import KnownFleet, write_fleet

FLEET = KnownFleet(num_ranks=13, num_layers=5, minutes=3, hot={(Phase.DECODE, 3, 23): 40.0})
BARE = KnownFleet(service="bare", num_ranks=1, num_layers=2, num_experts=8, minutes=2)
UNPLACED = KnownFleet(service="unplaced", num_ranks=2, num_layers=2, num_experts=8, minutes=2)
SETTINGS = Settings()
VALIDATOR = Draft202012Validator(read_report_schema("failover"))
HELD = FLEET.replicas().sum(axis=(1, 2))
"""Experts of each rank over all layers: contiguous blocks, four or five of each layer."""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    dsn = known.make_telemetry_store(tmp_path_factory.mktemp("telemetry") / "store", FLEET)
    client = clickhouse_connect.get_client(dsn=dsn, database=SETTINGS.database)
    write_fleet(client, BARE)
    write_fleet(client, UNPLACED, reported_ranks=range(0))
    client.close()
    opened = open_store(dsn)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def facts(store):
    scopes = [scope for scope in list_scopes(store) if scope.service == FLEET.service]
    return read_failover_facts(store, scopes, 900.0, SETTINGS)


def ask(store, settings=SETTINGS, service=FLEET.service, **question):
    return report.failover(store, question, window_seconds=900.0, settings=settings, service=service)


def group_of(answer) -> dict:
    (group,) = answer.to_dict()["groups"]
    return group


def test_facts_are_what_was_counted(facts):
    for phase in Phase:
        assert (facts.tokens_by_phase[phase] == FLEET.counts(phase).sum(axis=0)).all()
    assert (facts.placement.replicas == FLEET.replicas()).all()
    assert facts.top_k == FLEET.top_k
    assert facts.hosts == tuple(f"node-{rank // known.RANKS_PER_HOST}" for rank in range(13))
    assert facts.bytes_per_expert[0] == 13_000_001
    finished = FLEET.minutes * (known.GOOD_REQUESTS + known.SLOW_REQUESTS)
    assert facts.tokens_per_request == 2 * FLEET.minutes * FLEET.tokens_per_minute / finished
    assert facts.silent_ranks == ()


def test_every_rank_and_node_is_assessed_the_worst_first(store):
    group = group_of(ask(store))

    assert sorted(loss["ranks"][0] for loss in group["ranks"]) == list(range(13))
    shares = [loss["traffic_share"] for loss in group["ranks"]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)
    assert {loss["node"]: len(loss["ranks"]) for loss in group["nodes"]} == {
        "node-0": 4,
        "node-1": 4,
        "node-2": 4,
        "node-3": 1,
    }
    for loss in group["ranks"]:
        assert loss["lost_experts"] == HELD[loss["ranks"][0]]


def test_worker_that_holds_an_expert_is_named_with_what_goes_with_it(store):
    answer = ask(store, expert=23, layer=3)
    (loss,) = group_of(answer)["focus"]
    holder = int(FLEET.replicas()[:, 2, 23].argmax())
    tokens = sum(FLEET.counts(phase).sum(axis=0) for phase in Phase)
    held = FLEET.replicas()[holder] > 0

    assert loss["ranks"] == [holder]
    assert loss["traffic_share"] == pytest.approx(tokens[held].sum() / tokens.sum())
    assert [one["strategy"] for one in loss["strategies"]] == [one.value for one in FailoverStrategy]
    text = " ".join(answer.to_text(100).split())
    assert f"What happens when the worker holding expert 23 (rank {holder}) fails?" in text
    assert f"Expert 23 of layer 3 is held by rank {holder} (node-1), and has no other copy." in text
    assert f"Its {HELD[holder]} experts in 5 layers have no other copy and are lost" in text


def test_loss_comes_with_what_to_do(store):
    group = group_of(ask(store, rank=3))
    now, before = group["advice"]

    assert now.startswith("When it happens: send its requests elsewhere and restart the rank or replace it")
    assert before.startswith(
        "Before it happens: a copy of every expert on a second rank takes 64 redundant experts a layer "
        "(0 now)"
    )
    of_each_rank = 13_000_001 * 64 * 5 / 13 / 2**20
    assert f"{of_each_rank:.0f} MiB more on each rank" in before
    assert before.endswith(
        "`moescope plan --service known-fleet --ep-group 0 --redundant-experts N` says where N copies help "
        "most."
    )
    assert "--cover-nodes all" in group_of(ask(store, node="node-1"))["advice"][1]
    assert now in " ".join(ask(store, rank=3).to_text(100).split())


def test_silent_rank_takes_nothing_over_unless_it_is_asked_about(store, facts, monkeypatch):
    silent = replace(facts, silent_ranks=(3,))
    monkeypatch.setattr(failover_answer, "read_failover_facts", lambda *_, **__: silent)
    group = group_of(ask(store))
    held = FLEET.replicas()[5] > 0
    (lost,) = [loss for loss in group["ranks"] if loss["ranks"] == [5]]

    assert sorted(loss["ranks"][0] for loss in group["ranks"]) == [0, 1, 2, *range(4, 13)]
    assert 3 not in {one["busiest_rank"] for loss in group["ranks"] for one in loss["strategies"]}
    assert (group["silent_ranks"], group["missing_ranks"], group["ep_size"]) == ([3], [], 13)
    assert lost["traffic_share"] == pytest.approx(facts.tokens[held].sum() / facts.tokens.sum())
    text = " ".join(ask(store).to_text(100).split())
    assert "What follows counts it as gone; --rank 3 says what went with it." in text
    for question in ({"rank": 3}, {"expert": int(FLEET.replicas()[3, 2].argmax()), "layer": 3}):
        answer = ask(store, **question)
        assert group_of(answer)["focus"][0]["ranks"] == [3]
        assert "What follows counts it as alive" in " ".join(answer.to_text(100).split())


def test_fleet_without_redundancy_is_told_so(store):
    text = " ".join(ask(store).to_text(100).split())

    assert "No redundancy: every expert has one copy, so any rank lost loses 20 to 25 experts" in text


def test_report_fails_where_one_rank_takes_too_much_of_the_traffic(store):
    assert not ask(store).has_problem
    assert ask(store, Settings(failover_lost_share=0.05)).has_problem
    assert ask(store, Settings(failover_lost_share=0.05), rank=3).has_problem
    node = ask(store, Settings(failover_lost_share=0.2), node="node-1")
    assert not node.has_problem, "a node is as many ranks as it has"


def test_group_of_one_rank_is_no_failing_check(store):
    answer = ask(store, service=BARE.service)
    text = answer.to_text(100)

    assert not answer.has_problem
    assert "A group of one rank has nobody to fail over to" in " ".join(text.split())
    VALIDATOR.validate(json.loads(json.dumps(answer.to_dict(), allow_nan=False)))


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"rank": 3},
        {"node": "node-1"},
        {"expert": 23},
        {"strategy": "block"},
        {"times_slower": 2.5},
        {"times_slower": 2.5, "expert": 23, "layer": 3},
    ],
    ids=str,
)
def test_every_answer_fits_the_terminal_and_its_schema(store, question):
    answer = ask(store, **question)

    text = answer.to_text(100)
    assert max(map(len, text.splitlines())) <= 100
    assert "nan" not in text
    VALIDATOR.validate(json.loads(json.dumps(answer.to_dict(), allow_nan=False)))


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"rank": 13}, "has the ranks 0 … 12"),
        ({"node": "nowhere"}, "nodes of known-fleet, EP group 0: node-0, node-1"),
        ({"expert": 64}, "0 … 63"),
        ({"expert": 3, "layer": 0}, "layers with experts are 1 … 5"),
        ({"layer": 3}, "add --expert"),
        ({"rank": 1, "expert": 2}, "one of them at a time"),
        ({"strategy": "hope"}, "reassign_to_redundant_worker, block, fallback_expert"),
        ({"times_slower": 0.5}, "1 or more"),
        ({"times_slower": 2.0, "node": "node-0"}, "about one rank"),
    ],
    ids=str,
)
def test_question_that_has_no_answer_gets_the_way_out(store, question, words):
    with pytest.raises(UsageError, match=words):
        ask(store, **question)


def test_passes_are_read_as_they_were_measured(store, facts):
    times = read_pass_times(store, facts)[Phase.DECODE]

    np.testing.assert_allclose(times.exchange_seconds, 0.0013)
    assert times.expert_seconds.shape == (5, 13)
    spent = 0.079 * FLEET.minutes
    np.testing.assert_allclose(times.expert_seconds.sum(axis=0), times.expert_seconds.sum(axis=0)[0])
    assert times.expert_seconds.max() <= spent
    assert times.activated[0, 0] == times.activated[1, 0] == 1
    assert (np.diff(times.activated[1]) >= 0).all()


def test_front_end_takes_all_requests_with_it(store):
    (front_end,) = group_of(ask(store))["front_ends"]

    assert front_end["requests"] == FLEET.minutes * (known.GOOD_REQUESTS + known.SLOW_REQUESTS)
    assert front_end["share"] == 1
    assert "all requests are turned away" in ask(store).to_text(100)


def test_group_that_does_not_say_who_holds_what_is_named(store):
    answer = ask(store, service=UNPLACED.service)

    assert "unplaced, EP group 0: no rank says which experts it holds" in " ".join(
        answer.to_text(100).split()
    )
    VALIDATOR.validate(answer.to_dict())
    assert not answer.has_problem


def test_deployment_that_is_not_there_gets_the_way_out(store):
    answer = ask(store, service="elsewhere")

    assert answer.to_text().startswith("No telemetry is stored of elsewhere.")
    assert not answer.has_problem
