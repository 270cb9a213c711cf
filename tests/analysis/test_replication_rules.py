import numpy as np
import pytest

from moescope.analysis.replication import CoverNodes, PlanRules, plan_replication
from moescope.schemas.errors import PlanError
from moescope.schemas.topology import EMPTY_SLOT

TOKENS = np.random.default_rng(13).lognormal(5, 0.7, (4, 24))


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"ranks": 0}, "at least one rank"),
        ({"ranks": 4, "redundant_experts": -1}, "no negative number"),
        ({"ranks": 4, "slots_per_rank": (6, 6)}, "names 2 ranks, the group has 4"),
        ({"ranks": 6, "nodes": 4}, "6 ranks do not divide over 4 nodes"),
        ({"ranks": 4, "nodes": 2, "expert_groups": 3}, "3 expert groups do not divide over 2 nodes"),
        ({"ranks": 4, "cover_nodes": CoverNodes.HOT}, "needs at least 2 nodes"),
        (
            {"ranks": 4, "nodes": 2, "expert_groups": 4, "cover_nodes": CoverNodes.ALL},
            "Expert groups stay on one node",
        ),
        ({"ranks": 4, "memory_budget_bytes": 1e9}, "needs bytes_per_expert"),
    ],
)
def test_rules_that_contradict_themselves_are_refused(rules: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        PlanRules(**rules)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"slots_per_rank": (5, 5, 5, 5)}, "24 experts do not fit 20 slots"),
        ({"nodes": 2, "expert_groups": 10}, "24 experts do not divide into 10 groups"),
        ({"nodes": 2, "expert_groups": 4, "slots_per_rank": (9, 2, 9, 9)}, "Node 0 has 11 slots"),
        ({"expert_cost": np.ones(23)}, r"expert_cost has the shape \(23,\)"),
        ({"expert_cost": np.zeros(24)}, "positive cost"),
        (
            {"bytes_per_expert": np.ones(5), "memory_budget_bytes": 1e9},
            r"bytes_per_expert has the shape \(5,\)",
        ),
    ],
)
def test_rules_that_do_not_fit_the_model_are_refused(rules: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan_replication(TOKENS, PlanRules(ranks=4, **rules))


@pytest.mark.parametrize("tokens", [np.ones(24), np.ones((0, 24)), [[1.0, float("nan")]], [[1.0, -1.0]]])
def test_tokens_that_are_no_load_are_refused(tokens: object) -> None:
    with pytest.raises(PlanError, match="okens"):
        plan_replication(tokens, PlanRules(ranks=1))


def bytes_on_ranks(table: np.ndarray, ranks: int, bytes_per_layer: np.ndarray) -> np.ndarray:
    held = (table.reshape(len(table), ranks, -1) != EMPTY_SLOT).sum(axis=2)
    return bytes_per_layer @ held


@pytest.mark.parametrize("budget", [24, 25, 26, 27, 28, 32, 99])
def test_a_memory_budget_decides_how_many_spare_slots_are_used(budget: int) -> None:
    rules = PlanRules(ranks=4, redundant_experts=8, bytes_per_expert=10.0, memory_budget_bytes=budget * 10.0)
    plan = plan_replication(TOKENS, rules)
    used = bytes_on_ranks(plan.placement.physical_to_logical_map, 4, np.full(4, 10.0))
    assert used.max() <= budget * 10
    copies = plan.placement.replicas_per_layer_expert().sum()
    assert copies == 4 * min(budget, 32)
    assert plan.placement.same_rank_duplicates() == 0


def test_layers_of_different_sizes_share_the_budget() -> None:
    sizes = np.array([7.0, 7.0, 13.0, 23.0])
    rules = PlanRules(ranks=4, redundant_experts=12, bytes_per_expert=sizes, memory_budget_bytes=330.0)
    plan = plan_replication(TOKENS, rules)
    used = bytes_on_ranks(plan.placement.physical_to_logical_map, 4, sizes)
    assert used.max() <= 330
    assert used.min() > 330 - sizes.max()


def test_a_slot_is_counted_at_the_largest_expert_of_its_layer() -> None:
    sizes = np.full((4, 24), 5.0)
    sizes[:, 7] = 10.0
    rules = PlanRules(ranks=4, redundant_experts=8, bytes_per_expert=sizes, memory_budget_bytes=260.0)
    used = bytes_on_ranks(
        plan_replication(TOKENS, rules).placement.physical_to_logical_map, 4, np.full(4, 10.0)
    )
    assert used.max() <= 260


def test_a_budget_below_one_copy_each_says_how_much_is_missing() -> None:
    rules = PlanRules(ranks=4, redundant_experts=8, bytes_per_expert=1000.0, memory_budget_bytes=23_500.0)
    with pytest.raises(PlanError, match=r"takes 24,000 bytes on each of 4 ranks.* 500 bytes short"):
        plan_replication(TOKENS, rules)
