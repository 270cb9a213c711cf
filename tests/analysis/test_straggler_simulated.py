"""The simulator's scenarios, many times over: only a slow rank is called slow."""

import pytest

from moescope.analysis.straggler import StragglerKind
from moescope.analysis.straggler_evidence import StragglerRules
from moescope.analysis.stragglers import find_stragglers
from tests.analysis.straggler_simulations import simulate

RULES = StragglerRules()
FLEETS = [("gpt-oss", 8), ("gpt-oss", 16), ("mixtral", 8), ("kimi-k3", 8)]
OTHERS = (
    *("hot-expert", "topic-shift", "dead-rank@2m", "long-context"),
    *("prefill-congestion", "router-down", "kda-pressure"),
)


def named(evidence) -> dict[tuple[int, ...], StragglerKind]:
    return {one.ranks: one.kind for one in find_stragglers(evidence, RULES)}


@pytest.mark.parametrize(("model", "ranks"), FLEETS)
def test_ordinary_fleet_has_no_stragglers(model, ranks):
    for seed in range(2 if model == "kimi-k3" else 5):
        assert named(simulate(model=model, ranks=ranks, seed=seed)) == {}, seed


@pytest.mark.parametrize(("model", "ranks"), FLEETS)
def test_slow_rank_is_named_and_nobody_else(model, ranks):
    for seed in range(1 if model == "kimi-k3" else 3):
        (only,) = find_stragglers(simulate("slow-rank", model=model, ranks=ranks, seed=seed), RULES)
        assert (only.rank, only.kind) == (5, StragglerKind.SLOW_RANK), seed
        assert only.times_others == pytest.approx(2.5, rel=0.1)


@pytest.mark.parametrize("scenario", OTHERS)
@pytest.mark.parametrize("model", ["gpt-oss", "kimi-k3"])
def test_whatever_else_goes_wrong_is_not_called_slow(scenario, model):
    for seed in range(1 if model == "kimi-k3" else 3):
        kinds = set(named(simulate(scenario, model=model, seed=seed)).values())
        assert kinds <= {StragglerKind.OVERLOADED_RANK}, seed


def test_it_goes_quiet_when_the_rank_is_fast_again():
    assert named(simulate("slow-rank@0m-6m", minutes=6)) == {(5,): StragglerKind.SLOW_RANK}
    assert named(simulate("slow-rank@0m-6m", minutes=8)) == {}


def test_slow_rank_beside_a_dead_one_is_named():
    assert named(simulate("slow-rank,dead-rank@1m", ranks=8)) == {(5,): StragglerKind.SLOW_RANK}
