from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moescope.analysis.placement_score import balance_ratio
from moescope.analysis.replication import PlanRules, ReplicationPlan, plan_replication
from moescope.analysis.replication_packing import Packing
from moescope.analysis.replication_polish import polish
from moescope.schemas.topology import EMPTY_SLOT, Placement
from tests.analysis.plain_planner import plan_plainly

ROUNDING = 1 + 1e-9


def lognormal(layers: int, experts: int, sigma: float, seed: int = 13) -> np.ndarray:
    return np.rint(np.random.default_rng(seed).lognormal(9, sigma, (layers, experts)))


def zipf(layers: int, experts: int, exponent: float, seed: int = 13) -> np.ndarray:
    rates = np.arange(1, experts + 1) ** -exponent
    return np.random.default_rng(seed).permuted(np.tile(rates, (layers, 1)) * 1e6, axis=1)


def check_plan(plan: ReplicationPlan, tokens: np.ndarray, copies: int) -> None:
    """What every plan keeps."""
    replicas = plan.placement.replicas_per_layer_expert()
    assert plan.placement.same_rank_duplicates() == 0
    assert (replicas >= 1).all()
    assert (replicas.sum(axis=1) <= copies).all()
    np.testing.assert_allclose(plan.ratio, balance_ratio(tokens, plan.placement))
    assert (plan.ratio >= plan.bound / ROUNDING).all()
    assert (plan.bound >= 1).all()


@pytest.mark.parametrize("redundant_experts", [0, 1, 3, 4, 5, 9, 23, 60, 69])
def test_any_redundancy_gives_as_many_copies_on_distinct_ranks(redundant_experts: int) -> None:
    tokens = lognormal(5, 23, 1.0)
    plan = plan_replication(tokens, PlanRules(ranks=4, redundant_experts=redundant_experts))
    check_plan(plan, tokens, 23 + redundant_experts)
    assert (plan.placement.replicas_per_layer_expert().sum(axis=1) == 23 + redundant_experts).all()


def test_what_would_need_a_second_copy_on_a_rank_stays_empty() -> None:
    plan = plan_replication(np.ones((2, 5)), PlanRules(ranks=3, redundant_experts=79))
    assert (plan.placement.replicas_per_layer_expert() == 3).all()
    assert plan.placement.slots_per_rank == 5


def test_a_lone_hot_expert_is_split_over_all_ranks_and_the_rest_of_the_copies_go_round() -> None:
    tokens = np.zeros((1, 13))
    tokens[0, 7] = 997
    plan = plan_replication(tokens, PlanRules(ranks=4, redundant_experts=11))
    assert plan.ratio.tolist() == [1.0]
    replicas = plan.placement.replicas_per_layer_expert()[0]
    assert replicas[7] == 4
    assert np.delete(replicas, 7).max() == 2


def test_a_layer_without_tokens_is_planned_as_if_all_experts_were_alike() -> None:
    plan = plan_replication(np.zeros((1, 13)), PlanRules(ranks=4, redundant_experts=13))
    assert plan.placement.replicas_per_layer_expert().tolist() == [[2] * 13]
    assert (plan.ratio.tolist(), plan.bound.tolist(), plan.is_cut_short) == ([1.0], [1.0], False)


def test_experts_that_are_all_alike_need_no_search() -> None:
    plan = plan_replication(np.full((2, 24), 23), PlanRules(ranks=4))
    assert plan.ratio.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "tokens",
    [
        lognormal(6, 256, 0.25),
        lognormal(6, 256, 0.5),
        lognormal(6, 256, 1.0),
        zipf(6, 256, 0.8),
        zipf(6, 256, 1.2),
    ],
    ids=["lognormal 0.25", "lognormal 0.5", "lognormal 1.0", "zipf 0.8", "zipf 1.2"],
)
@pytest.mark.parametrize("redundant_experts", [16, 23, 32])
def test_a_spare_slot_per_rank_brings_every_layer_to_its_bound(
    tokens: np.ndarray, redundant_experts: int
) -> None:
    plan = plan_replication(tokens, PlanRules(ranks=16, redundant_experts=redundant_experts))
    check_plan(plan, tokens, 256 + redundant_experts)
    assert plan.is_at_bound.all()


def test_more_copies_of_half_a_rank_than_there_are_ranks_are_not_made() -> None:
    """Minimax makes more than 64 copies of 0.57 of a rank here; two of them on a rank are 1.14."""
    plan = plan_replication(zipf(2, 896, 1.2), PlanRules(ranks=64, redundant_experts=64))
    assert plan.ratio.max() < 1.0005


def test_without_spare_slots_the_bound_says_that_only_copies_can_help() -> None:
    plan = plan_replication(zipf(2, 896, 1.0), PlanRules(ranks=64))
    assert plan.bound.min() > 8
    assert plan.is_at_bound.all()


def test_slots_that_differ_by_rank_are_kept() -> None:
    tokens = lognormal(3, 23, 0.5)
    slots = (13, 2, 0, 9, 5)
    plan = plan_replication(tokens, PlanRules(ranks=5, slots_per_rank=slots))
    check_plan(plan, tokens, 29)
    held = (plan.placement.physical_to_logical_map.reshape(3, 5, -1) != EMPTY_SLOT).sum(axis=2)
    assert (held <= np.array(slots)).all()


def test_the_slots_of_a_rank_are_in_order_and_empty_ones_last() -> None:
    plan = plan_replication(lognormal(3, 23, 0.5), PlanRules(ranks=4, redundant_experts=3))
    for rank in plan.placement.physical_to_logical_map.reshape(-1, 7).tolist():
        held = [expert for expert in rank if expert != EMPTY_SLOT]
        assert rank == sorted(held) + [EMPTY_SLOT] * (7 - len(held))


def test_a_token_that_costs_more_counts_more() -> None:
    tokens, cost = np.full((1, 4), 100), np.array([3.0, 1.0, 1.0, 1.0])
    plan = plan_replication(tokens, PlanRules(ranks=2, redundant_experts=2, expert_cost=cost))
    assert plan.ratio.tolist() == [1.0]
    assert balance_ratio(tokens * cost, plan.placement).tolist() == [1.0]


def test_the_same_input_gives_the_same_plan() -> None:
    tokens, rules = zipf(4, 64, 1.2), PlanRules(ranks=8, redundant_experts=4)
    first, second = (plan_replication(tokens, rules).placement for _ in range(2))
    assert (first.physical_to_logical_map == second.physical_to_logical_map).all()


def test_a_time_budget_that_is_used_up_is_said() -> None:
    tokens = lognormal(2, 23, 1.0)
    plan = plan_replication(tokens, PlanRules(ranks=12, redundant_experts=13, time_budget_seconds=0.0))
    assert plan.is_cut_short
    check_plan(plan, tokens, 36)


def test_progress_ends_with_all_layers() -> None:
    seen: list[tuple[int, int]] = []
    plan_replication(
        zipf(3, 64, 1.2), PlanRules(ranks=8, redundant_experts=8), lambda *step: seen.append(step)
    )
    assert seen[-1] == (3, 3)
    assert all(0 <= done <= 3 for done, _ in seen)


def test_a_plan_cannot_be_changed_afterwards() -> None:
    plan = plan_replication(np.ones((1, 4)), PlanRules(ranks=2))
    for array in (plan.ratio, plan.bound, plan.placement.physical_to_logical_map):
        assert not array.flags.writeable


loads = st.one_of(st.integers(0, 4), st.integers(0, 50_000), st.sampled_from([0, 0, 1, 10_000]), st.just(79))


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], int, int]:
    """Tokens, ranks and redundant experts, from one expert up."""
    ranks = draw(st.integers(1, 6))
    tokens = draw(st.lists(draw(st.sampled_from([loads, st.integers(0, 3)])), min_size=1, max_size=24))
    return tokens, ranks, draw(st.integers(0, 2 * len(tokens)))


@settings(max_examples=40)
@given(problems())
def test_every_plan_keeps_the_rules(problem: tuple[list[int], int, int]) -> None:
    tokens, ranks, redundant = problem
    table = np.array([tokens])
    plan = plan_replication(table, PlanRules(ranks=ranks, redundant_experts=redundant))
    check_plan(plan, table, len(tokens) + redundant)


@settings(max_examples=60)
@given(problems())
def test_no_plan_is_worse_than_the_published_greedy_one(problem: tuple[list[int], int, int]) -> None:
    tokens, ranks, redundant = problem
    redundant += -(len(tokens) + redundant) % ranks
    plain = plan_plainly([float(load) for load in tokens], ranks, redundant)
    if plain.same_rank_duplicates():
        return
    table = np.array([tokens])
    plan = plan_replication(table, PlanRules(ranks=ranks, redundant_experts=redundant))
    assert plan.ratio[0] <= balance_ratio(table, plain)[0] * ROUNDING


@settings(max_examples=15)
@given(problems())
def test_more_or_less_of_the_same_load_changes_nothing(problem: tuple[list[int], int, int]) -> None:
    tokens, ranks, redundant = problem
    rules = PlanRules(ranks=ranks, redundant_experts=redundant)
    plan, scaled = (plan_replication(np.array([tokens]) * factor, rules) for factor in (1, 1024))
    assert (plan.placement.physical_to_logical_map == scaled.placement.physical_to_logical_map).all()


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_experts_does_not_matter(seed: int) -> None:
    tokens = lognormal(4, 79, 0.7, seed)
    rules = PlanRules(ranks=7, redundant_experts=13)
    shuffled = np.random.default_rng(seed).permuted(tokens, axis=1)
    np.testing.assert_allclose(plan_replication(tokens, rules).ratio, plan_replication(shuffled, rules).ratio)


@pytest.mark.parametrize("redundant_experts", [0, 8, 16])
def test_no_layer_is_worse_than_the_contiguous_placement(redundant_experts: int) -> None:
    tokens = lognormal(8, 64, 1.0)
    plan = plan_replication(tokens, PlanRules(ranks=8, redundant_experts=redundant_experts))
    contiguous = Placement(np.tile(np.arange(64), (8, 1)), 8, 64)
    assert (plan.ratio <= balance_ratio(tokens, contiguous)).all()


@pytest.mark.parametrize(
    ("tokens", "ranks", "redundant_experts", "best"),
    [
        ([23, 23], 2, 1, 1.0),
        ([23] * 3, 3, 1, 1.0),
        ([23] * 7, 2, 4, 1.0),
        ([1, 3, 3, 3, 4], 2, 1, 1.0),
        ([4, 3, 4], 3, 4, 12 / 11),
        ([100] * 896, 64, 1, 1.0),
    ],
)
def test_a_copy_that_only_unbalances_is_left_out(
    tokens: list[int], ranks: int, redundant_experts: int, best: float
) -> None:
    plan = plan_replication([tokens], PlanRules(ranks=ranks, redundant_experts=redundant_experts))
    check_plan(plan, np.array([tokens]), len(tokens) + redundant_experts)
    assert plan.ratio[0] == pytest.approx(best)


@pytest.mark.parametrize("largest", [1e-299, 2.0**62, 1e250])
def test_loads_of_any_size_are_planned_alike(largest: float) -> None:
    shares = np.array([[1, 0.5, 0.25, 0.125, 0.125], [0.5, 1, 0.25, 0.5, 0.75], [0, 0, 0, 0, 0]])
    rules = PlanRules(ranks=3, redundant_experts=4)
    np.testing.assert_allclose(
        plan_replication(shares * largest, rules).ratio, plan_replication(shares, rules).ratio
    )


@given(
    tokens=st.lists(st.integers(0, 9), min_size=2, max_size=5),
    ranks=st.integers(1, 3),
    redundant_experts=st.integers(0, 5),
)
@settings(max_examples=60, deadline=None)
def test_the_bound_is_never_above_the_best_of_all_placements(
    tokens: list[int], ranks: int, redundant_experts: int
) -> None:
    plan = plan_replication([tokens], PlanRules(ranks=ranks, redundant_experts=redundant_experts))
    best = least_ratio(tokens, ranks, redundant_experts)
    assert plan.bound[0] <= best * ROUNDING
    assert best / ROUNDING <= plan.ratio[0] <= best * 1.15


def least_ratio(tokens: list[int], ranks: int, redundant_experts: int) -> float:
    """Of every way to give each expert a set of ranks, with at most so many copies and slots on each."""
    copies = min(len(tokens) + redundant_experts, len(tokens) * ranks)
    slots = -(-copies // ranks)
    sets = [np.array(held) for held in product((0, 1), repeat=ranks) if any(held)]
    best = [np.inf]

    def place(expert: int, load: np.ndarray, held: np.ndarray) -> None:
        left = len(tokens) - expert
        if load.max(initial=0) >= best[0] or held.max() > slots or held.sum() + left > copies:
            return
        if not left:
            best[0] = float(load.max())
            return
        for chosen in sets:
            place(expert + 1, load + chosen * tokens[expert] / chosen.sum(), held + chosen)

    place(0, np.zeros(ranks), np.zeros(ranks, dtype=np.int64))
    return best[0] / (sum(tokens) / ranks) if any(tokens) else 1.0


def test_a_heavy_rank_helps_where_no_light_one_may_take_a_copy() -> None:
    experts = np.array([[[0, 1]] * 13 + [[2 * rank, 2 * rank + 1] for rank in range(13, 26)]])
    piece = np.where(experts == 0, 0.3, np.where(experts == 1, 0.3, 0.55))
    piece[0, 0] = [1.0, 0.6]
    packing = Packing(experts, piece, piece.sum(axis=2))
    polish(packing, np.array([1.0]), rounds=1)
    assert packing.worst[0] == pytest.approx(1.0 + 0.55)
    np.testing.assert_allclose(packing.load, packing.piece.sum(axis=2))
