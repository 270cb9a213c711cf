from dataclasses import replace

import numpy as np
import pytest

from moescope.analysis.imbalance import estimate_noise_floor
from moescope.analysis.placement_score import balance_ratio, rank_loads
from moescope.analysis.plan_advice import (
    PlanEffect,
    PlanVerdict,
    advise,
    count_needed_copies,
    find_uneven,
)
from moescope.analysis.replication import PlanRules, plan_replication
from moescope.schemas.topology import ModelShape, place_contiguously

RANKS = 8


def effect_of(tokens, redundant=0, *, is_counts=True):
    """What a plan of one window does, from experts in order."""
    shape = ModelShape("m", len(tokens), tuple(range(len(tokens))), tokens.shape[1], 1)
    plan = plan_replication(tokens, PlanRules(ranks=RANKS, redundant_experts=redundant))
    before = place_contiguously(shape, RANKS)
    unclustered = np.ones(len(tokens))
    floor = estimate_noise_floor(np.maximum(tokens.sum(axis=1), 1) / RANKS, RANKS, unclustered)
    uneven = find_uneven(rank_loads(tokens, before), unclustered) if is_counts else unclustered > 0
    return PlanEffect(
        tokens=tokens,
        ratio_before=balance_ratio(tokens, before),
        ratio_after=plan.ratio,
        bound=plan.bound,
        noise_floor=floor if is_counts else None,
        is_uneven=uneven,
        ranks=RANKS,
        redundant_experts=redundant,
        moved=79,
        moved_bytes=None,
        backtest=None,
    )


@pytest.mark.parametrize("mean", [1, 5, 20, 100])
def test_a_uniform_router_is_left_alone(mean):
    random = np.random.default_rng([79, mean])

    verdicts = [advise(effect_of(random.poisson(mean, (5, 64)))).verdict for _ in range(20)]

    assert verdicts.count(PlanVerdict.LEAVE_IT) >= 19


@pytest.mark.parametrize("mean", [8, 40, 800])
def test_ranks_of_a_uniform_router_seem_uneven_once_in_a_thousand_loads(mean):
    loads = np.random.default_rng([79, mean]).poisson(mean, (4_000, 5, RANKS))

    alarms = sum(find_uneven(one.astype(float), np.ones(5)).any() for one in loads)

    assert alarms <= 12


def test_clustered_tokens_are_not_taken_for_uneven_ranks():
    loads = 8 * np.random.default_rng(23).poisson(40, (500, 5, RANKS)).astype(float)

    alarms = sum(find_uneven(one, np.full(5, 8.0)).any() for one in loads)

    assert alarms <= 3


def test_ranks_of_different_load_are_worth_a_plan():
    tokens = np.repeat([[500, 1000, 500, 500, 500, 500, 500, 500]], 8, axis=1).reshape(1, 64)

    advice = advise(effect_of(tokens))

    assert advice.verdict is PlanVerdict.APPLY
    assert "falls from 1.78 to 1.0" in advice.sentence


def test_one_expert_that_is_more_than_a_rank_needs_copies_and_is_told_how_many():
    tokens = np.full((3, 64), 100.0)
    tokens[:, 0] = 6400  # half of all: four of eight ranks
    effect = effect_of(tokens)

    advice = advise(effect)

    # Nothing but copies changes the rank that holds it; 3 more would do, and 8 fill every rank's slots.
    assert advice.verdict is PlanVerdict.ONLY_REPLICAS
    assert "--redundant-experts 8" in advice.sentence
    assert count_needed_copies(tokens, RANKS) == 8
    assert effect_of(tokens, redundant=8).bound.tolist() == [1, 1, 1]


def test_a_plan_that_hardly_touches_what_is_bound_to_stay_is_no_advice():
    tokens = np.full((3, 64), 100.0)
    tokens[:, 0], tokens[:, 1] = 6400, 1000  # the second is one that could go elsewhere
    effect = effect_of(tokens)

    advice = advise(effect)

    assert effect.ratio_after.max() < effect.ratio_before.min()
    assert advice.verdict is PlanVerdict.ONLY_REPLICAS
    assert "(now " in advice.sentence


def test_what_replicas_could_bring_besides_is_said_with_the_plan():
    random = np.random.default_rng(13)
    tokens = random.permuted(1e5 / np.arange(1, 65) ** 1.2 * np.ones((3, 1)), axis=1)

    advice = advise(effect_of(tokens, is_counts=False))

    assert advice.verdict is PlanVerdict.APPLY
    assert "takes more replicas: --redundant-experts 8" in advice.sentence


def test_a_plan_that_moves_nothing_is_no_plan():
    tokens = np.full((3, 64), 100.0)
    effect = effect_of(tokens)

    assert advise(effect).verdict is PlanVerdict.LEAVE_IT


def test_no_load_is_no_reason():
    assert advise(effect_of(np.zeros((2, 64)))).sentence == "Leave it: there is no load to balance."


def test_a_plan_that_its_rules_make_worse_is_left_and_not_put_down_to_noise():
    tokens = np.full((1, 16), 23_000)
    tokens[0, :2] = 46_000
    before = effect_of(tokens)
    worse = replace(before, ratio_after=before.ratio_before + 0.5)

    advice = advise(worse)

    assert advice.verdict is PlanVerdict.LEAVE_IT
    assert "no better" in advice.sentence
    assert "noise" not in advice.sentence


def test_what_one_layer_loses_counts_against_what_another_gains():
    tokens = np.repeat([[46_000], [23_000]], 16, axis=1)
    effect = replace(
        effect_of(tokens),
        ratio_before=np.array([1.5, 1.2]),
        ratio_after=np.array([1.2, 1.8]),
        is_uneven=np.array([True, True]),
        bound=np.ones(2),
    )

    assert advise(effect).verdict is PlanVerdict.LEAVE_IT
