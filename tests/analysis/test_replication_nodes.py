import numpy as np
import pytest

from moescope.analysis.placement_score import balance_ratio
from moescope.analysis.replication import CoverNodes, PlanRules, plan_replication
from moescope.analysis.replication_coverage import in_two_places, measure_coverage
from moescope.analysis.replication_groups import share_groups
from moescope.analysis.replication_problem import TimeBudget
from moescope.schemas.topology import Placement

# The example of DeepSeek's EPLB (README, MIT): two layers, 16 slots on 8 ranks of 2 nodes, 4 expert groups.
PUBLISHED_TOKENS = np.array(
    [
        [90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
        [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27],
    ]
)
PUBLISHED_MAP = np.array(
    [
        [5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1],
        [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1],
    ]
)


def nodes_of_groups(placement: Placement, nodes: int, groups: int) -> np.ndarray:
    """How many nodes hold experts of each group: int64 ``[layers, groups]``."""
    held = placement.replicas_per_rank_layer_expert() > 0
    by_node = held.reshape(nodes, -1, *held.shape[1:]).any(axis=1)
    return by_node.reshape(nodes, len(by_node[0]), groups, -1).any(axis=3).sum(axis=0)


def test_the_published_example_is_matched_or_bettered_on_every_layer() -> None:
    rules = PlanRules(ranks=8, redundant_experts=4, nodes=2, expert_groups=4)
    plan = plan_replication(PUBLISHED_TOKENS, rules)
    theirs = balance_ratio(PUBLISHED_TOKENS, Placement(PUBLISHED_MAP, 8, 12))
    assert (plan.ratio <= theirs + 1e-12).all()
    assert plan.ratio[0] < theirs[0] - 0.03
    assert (nodes_of_groups(plan.placement, 2, 4) == 1).all()


@pytest.mark.parametrize(("nodes", "groups"), [(2, 8), (4, 8), (8, 8)])
def test_a_group_stays_on_one_node_and_the_heaviest_node_is_the_bound(nodes: int, groups: int) -> None:
    tokens = np.random.default_rng(13).lognormal(9, 0.7, (3, 128))
    rules = PlanRules(ranks=16, redundant_experts=32, nodes=nodes, expert_groups=groups)
    plan = plan_replication(tokens, rules)
    assert (nodes_of_groups(plan.placement, nodes, groups) == 1).all()
    assert plan.placement.same_rank_duplicates() == 0
    assert (plan.ratio >= plan.bound * (1 - 1e-9)).all()
    assert plan.is_at_bound.all()


def test_many_groups_are_placed_like_experts() -> None:
    tokens = np.random.default_rng(13).lognormal(9, 0.7, (3, 128))
    rules = PlanRules(ranks=16, redundant_experts=32, nodes=4, expert_groups=32)
    plan = plan_replication(tokens, rules)
    assert (nodes_of_groups(plan.placement, 4, 32) == 1).all()
    assert (plan.ratio <= plan.bound * 1.005).all()


def test_copies_that_nodes_cannot_share_alike_go_to_the_heaviest() -> None:
    tokens = np.ones((1, 16))
    tokens[0, :4] = [40, 5, 5, 5]  # one of four groups, and an expert in it that a node splits
    rules = PlanRules(ranks=4, redundant_experts=1, nodes=2, expert_groups=4)
    plan = plan_replication(tokens, rules)
    held = plan.placement.replicas_per_rank_layer_expert()[:, 0]
    by_node = held.reshape(2, 2, 16).sum(axis=(1, 2))
    heavy = held.reshape(2, 2, 16)[:, :, 0].sum(axis=1).argmax()
    assert (by_node[heavy], by_node[1 - heavy]) == (9, 8)


def test_a_hot_expert_can_only_be_copied_within_its_node() -> None:
    tokens = np.ones((1, 16))
    tokens[0, 7] = 100
    plan = plan_replication(tokens, PlanRules(ranks=8, redundant_experts=8, nodes=4, expert_groups=4))
    assert plan.placement.replicas_per_layer_expert()[0, 7] == 2
    assert plan.bound[0] == pytest.approx((100 + 3) / 2 / (115 / 8))  # its node has two ranks
    assert plan.ratio[0] == pytest.approx(plan.bound[0])


def test_every_way_to_share_groups_is_looked_at() -> None:
    load = np.array([[9.0, 8.0, 5.0, 4.0, 4.0, 2.0]])
    splits, bound = share_groups(load, 2, TimeBudget(1.0))
    heaviest = max(load[0, splits[0][0] == node].sum() for node in range(2))
    assert heaviest == 16.0  # 9 + 5 + 2 and 8 + 4 + 4
    assert bound.tolist() == [1.0]


def test_a_layer_without_tokens_has_its_groups_shared_too() -> None:
    rules = PlanRules(ranks=4, redundant_experts=4, nodes=2, expert_groups=4)
    plan = plan_replication(np.zeros((1, 16)), rules)
    assert plan.ratio.tolist() == [1.0]
    assert (nodes_of_groups(plan.placement, 2, 4) == 1).all()


@pytest.mark.parametrize("redundant_experts", [16, 32, 64])
@pytest.mark.parametrize("cover_nodes", [CoverNodes.HOT, CoverNodes.ALL])
def test_cover_costs_next_to_no_balance_and_brings_more_traffic_to_two_nodes(
    cover_nodes: CoverNodes, redundant_experts: int
) -> None:
    tokens = np.random.default_rng(13).lognormal(9, 0.8, (3, 192))
    rules = {"ranks": 16, "redundant_experts": redundant_experts, "nodes": 4}
    bare = plan_replication(tokens, PlanRules(**rules))
    plan = plan_replication(tokens, PlanRules(**rules, cover_nodes=cover_nodes))
    assert (plan.ratio <= bare.ratio * 1.002).all()
    assert plan.placement.same_rank_duplicates() == 0
    assert plan.coverage.traffic_on_two_nodes > bare.coverage.traffic_on_two_nodes
    assert plan.coverage.hot_on_two_nodes > bare.coverage.hot_on_two_nodes


def test_every_expert_can_survive_a_node_where_there_are_slots_for_it() -> None:
    tokens = np.random.default_rng(13).lognormal(9, 0.3, (3, 48))
    rules = PlanRules(ranks=8, redundant_experts=48, nodes=4, cover_nodes=CoverNodes.ALL)
    plan = plan_replication(tokens, rules)
    assert plan.coverage.traffic_on_two_nodes == 1.0
    assert plan.ratio.max() < 1.002


def test_hot_experts_come_before_others() -> None:
    tokens = np.random.default_rng(13).lognormal(5, 0.1, (1, 80))
    tokens[0, [3, 23, 79]] *= 3
    rules = {"ranks": 8, "redundant_experts": 8, "nodes": 2}
    plan = plan_replication(tokens, PlanRules(**rules, cover_nodes=CoverNodes.HOT))
    assert (plan.coverage.hot_experts, plan.coverage.hot_on_two_nodes) == (3, 1.0)


def test_two_copies_on_one_node_are_on_two_ranks_only() -> None:
    placement = Placement(np.array([[0, 1, 0, 2, 3, -1, -1, 3]]), ep_size=4, num_experts=4)
    assert in_two_places(placement, 4).tolist() == [[True, False, False, True]]
    assert in_two_places(placement, 2).tolist() == [[False, False, False, False]]
    coverage = measure_coverage(np.array([[40.0, 10.0, 10.0, 20.0]]), placement, nodes=2, hot_ratio=2.0)
    assert (coverage.hot_experts, coverage.hot_on_two_ranks, coverage.hot_on_two_nodes) == (1, 1.0, 0.0)
    assert (coverage.traffic_on_two_ranks, coverage.traffic_on_two_nodes) == (0.75, 0.0)


def test_nothing_is_hot_and_nothing_flows_without_tokens() -> None:
    placement = Placement(np.array([[0, 1]]), ep_size=2, num_experts=2)
    coverage = measure_coverage(np.zeros((1, 2)), placement, nodes=1, hot_ratio=2.0)
    assert (coverage.hot_experts, coverage.hot_on_two_ranks, coverage.traffic_on_two_ranks) == (0, 1.0, 0.0)
