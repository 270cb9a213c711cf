"""One loss rank by rank and layer by layer, in known odd amounts."""

import numpy as np
import pytest

from moescope.analysis.expert_load import list_scopes
from moescope.analysis.failover_answer import FailoverQuestion, answer_failover, group_scopes
from moescope.analysis.failover_facts import read_failover_facts
from moescope.analysis.failover_impact import FailoverStrategy
from moescope.analysis.failover_picture import picture_loss
from moescope.analysis.store import open_store
from moescope.schemas.attributes import Phase
from moescope.schemas.settings import Settings
from tests.analysis.known_telemetry import make_telemetry_store
from tests.analysis.known_workloads import KnownFleet

FLEET = KnownFleet(num_ranks=13, num_layers=5, minutes=2, hot={(Phase.DECODE, 3, 23): 40.0})
TOKENS = sum(FLEET.counts(phase).sum(axis=0) for phase in Phase)
HELD = FLEET.replicas() > 0
LOST = 4
"""It holds the hot expert."""


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    store = open_store(make_telemetry_store(tmp_path_factory.mktemp("picture") / "store", FLEET))
    scopes = next(group_scopes(list_scopes(store), FLEET.service, FLEET.ep_group))
    facts = read_failover_facts(store, scopes, 900.0, Settings())
    yield answer_failover(store, facts, FailoverQuestion(rank=LOST), Settings(), 10)
    store.close()


def picture_of(answer, strategy):
    return picture_loss(answer.facts, answer.focus[0], strategy)


def test_load_before_is_what_each_rank_holds_in_multiples_of_the_mean(answer):
    picture = picture_of(answer, FailoverStrategy.FALLBACK)
    load = np.array([TOKENS[held].sum() for held in HELD])
    assert picture.load_before == pytest.approx(load / load.mean())
    assert picture.ranks[picture.is_lost].tolist() == [LOST]


@pytest.mark.parametrize("strategy", [FailoverStrategy.REASSIGN, FailoverStrategy.FALLBACK])
def test_survivors_take_over_all_of_it(answer, strategy):
    picture = picture_of(answer, strategy)
    assert picture.load_after[LOST] == 0
    assert picture.load_after.sum() == pytest.approx(picture.load_before.sum())
    stays = ~picture.is_lost
    assert picture.growth[stays] == pytest.approx(picture.load_after[stays] / picture.load_before[stays])


def test_lost_share_of_a_layer_is_that_of_its_lost_experts(answer):
    picture = picture_of(answer, FailoverStrategy.BLOCK)
    shares = (TOKENS * HELD[LOST]).sum(axis=1) / TOKENS.sum(axis=1)
    assert picture.lost_share_by_layer == pytest.approx(shares)
    assert picture.lost_by_layer.tolist() == HELD[LOST].sum(axis=1).tolist()


def test_lost_expert_that_is_missed_most_comes_first(answer):
    lost = picture_of(answer, FailoverStrategy.BLOCK).lost
    assert (lost[0].layer, lost[0].expert) == (3, 23)
    assert lost[0].layer_share == pytest.approx(TOKENS[2, 23] / TOKENS[2].sum())
    assert [one.layer_share for one in lost] == sorted((one.layer_share for one in lost), reverse=True)
    assert len(lost) == HELD[LOST].sum()


def test_only_loading_again_costs_memory_and_of_every_lost_expert(answer):
    assert not picture_of(answer, FailoverStrategy.FALLBACK).loads_again
    picture = picture_of(answer, FailoverStrategy.REASSIGN)
    assert picture.loads_again
    assert picture.bytes_to_load.sum() == 13_000_001 * HELD[LOST].sum()
    assert picture.bytes_to_load[LOST] == 0
