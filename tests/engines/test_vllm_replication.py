"""The planner beside vLLM's own, on the loads that the benchmark compares them on."""

import warnings

import numpy as np
import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what torch and vLLM say of themselves while they are imported
    from vllm.distributed.eplb.policy.default import DefaultEplbPolicy

from moescope.analysis.placement_score import balance_ratio
from moescope.analysis.replication import PlanRules, plan_replication
from moescope.schemas.topology import Placement

pytestmark = pytest.mark.engine

ROUNDING = 1 + 1e-9


def vllm_plan(tokens, ranks, redundant_experts, *, groups=1, nodes=1):
    copies = tokens.shape[1] + redundant_experts
    weight = torch.from_numpy(tokens.astype(np.float64))
    table = DefaultEplbPolicy.rebalance_experts(weight, copies, groups, nodes, ranks)
    return Placement(table.numpy(), ranks, tokens.shape[1])


def layers_apart(placement):
    """Layers in which no two copies of an expert share a rank."""
    return (placement.replicas_per_rank_layer_expert() <= 1).all(axis=(0, 2))


@pytest.mark.parametrize(
    ("experts", "ranks", "redundant_experts"), [(16, 4, 0), (23, 5, 7), (64, 8, 8), (128, 16, 32)]
)
@pytest.mark.parametrize("kind", ["few tokens", "lognormal", "equal giants", "zipf"])
def test_no_layer_is_worse_than_where_vllm_keeps_copies_apart(experts, ranks, redundant_experts, kind):
    random = np.random.default_rng(13)
    tokens = {
        "few tokens": random.poisson(3.0, (13, experts)),
        "lognormal": np.rint(random.lognormal(8, 0.8, (13, experts))),
        "equal giants": np.where(random.random((13, experts)) < 0.2, 997, 23),
        "zipf": random.permuted(np.tile(1e6 // np.arange(1, experts + 1), (13, 1)), axis=1),
    }[kind]
    theirs = vllm_plan(tokens, ranks, redundant_experts)
    plan = plan_replication(tokens, PlanRules(ranks=ranks, redundant_experts=redundant_experts))
    apart = layers_apart(theirs)
    assert (plan.ratio[apart] <= balance_ratio(tokens, theirs)[apart] * ROUNDING).all()
    assert plan.placement.same_rank_duplicates() == 0


@pytest.mark.parametrize("nodes", [2, 4])
def test_no_layer_is_worse_with_expert_groups_on_nodes(nodes):
    tokens = np.rint(np.random.default_rng(13).lognormal(8, 0.8, (13, 64)))
    theirs = vllm_plan(tokens, 16, 16, groups=8, nodes=nodes)
    rules = PlanRules(ranks=16, redundant_experts=16, nodes=nodes, expert_groups=8)
    apart = layers_apart(theirs)
    assert (
        plan_replication(tokens, rules).ratio[apart] <= balance_ratio(tokens, theirs)[apart] * ROUNDING
    ).all()
