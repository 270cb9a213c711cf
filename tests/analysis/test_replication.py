import numpy as np
import pytest

from moescope.analysis.placement_score import balance_ratio
from moescope.analysis.replication import PlanRules, plan_replication


@pytest.mark.parametrize("redundant_experts", [0, 1, 3, 4, 5, 9, 23])
def test_a_plan_covers_every_expert_on_distinct_ranks(redundant_experts: int) -> None:
    tokens = np.random.default_rng(13).lognormal(0, 1, (5, 23))
    plan = plan_replication(tokens, PlanRules(ranks=4, redundant_experts=redundant_experts))
    assert plan.placement.same_rank_duplicates() == 0
    assert (plan.placement.replicas_per_layer_expert().sum(axis=1) == 23 + redundant_experts).all()
    np.testing.assert_allclose(plan.ratio, balance_ratio(tokens, plan.placement))
    assert (plan.ratio >= plan.bound * (1 - 1e-9)).all()
