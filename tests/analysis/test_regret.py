"""Regret: noise has none, a placement that no longer fits has, and one that cannot be helped says so."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from moescope.analysis.imbalance import compute_rank_loads, judge_imbalance
from moescope.analysis.regret import estimate_regret
from moescope.schemas.topology import every_layer_from, place_contiguously


def _place(layers, experts, ranks):
    return place_contiguously(every_layer_from("m", 0, layers, num_experts=experts, top_k=2), ranks)


def _regret(counts, placement, effect=1.0, **options):
    """Regret with the floors of the layers that have a verdict."""
    loads = compute_rank_loads(counts, placement.replicas_per_rank_layer_expert())
    judged = judge_imbalance(
        loads, np.full(len(counts), float(effect)), acceptable_ratio=2.0, min_mean_load=30.0
    )
    return estimate_regret(counts, placement, judged.floor_of_judged, **options)


@pytest.mark.parametrize("cluster", [1, 8, 30])
@pytest.mark.parametrize("mean", [1, 5, 20, 100])
def test_uniform_router_has_no_regret(mean, cluster):
    counts = cluster * np.random.default_rng([mean, cluster]).poisson(mean / cluster, (23, 256))
    regret = _regret(counts, _place(23, 256, 16), cluster)
    assert regret.mean < 0.05


def test_two_hot_experts_on_one_rank_are_regretted_and_few_moves_part_them():
    counts = np.full((13, 64), 1000)
    counts[7, :2] = 9000
    regret = _regret(counts, _place(13, 64, 8))
    assert np.flatnonzero(regret.regret > 0.1).tolist() == [7]
    assert 1 <= regret.moved <= 0.02 * 13 * 64
    assert regret.ratio_now[7] > 1.3 + regret.ratio_after_moves[7] - 1
    assert regret.mean == pytest.approx(regret.regret[7] / 13, rel=0.01)


def test_single_expert_that_is_more_than_a_rank_is_no_regret_where_only_replicas_help():
    counts = np.full((1, 8), 100)
    counts[0, 3] = 10_000
    regret = _regret(counts, _place(1, 8, 8), moved_share=0.5)
    assert regret.moved == 0
    assert regret.regret.tolist() == [0]
    assert regret.only_replicas_help.tolist() == [True]


def test_layers_that_nothing_is_known_of_have_no_regret():
    counts = np.array([[0, 0, 0, 0], [9000, 9000, 10, 10]])
    regret = estimate_regret(counts, _place(2, 4, 2), np.array([np.nan, np.nan]), moved_share=1.0)
    assert regret.regret.tolist() == [0, 0]
    assert regret.ratio_now[1] > 1.9


@settings(max_examples=30)
@given(hnp.arrays(np.int64, (2, 12), elements=st.integers(0, 10**6)), st.floats(1, 2))
def test_moves_never_make_a_layer_worse(counts, floor):
    regret = estimate_regret(counts, _place(2, 12, 4), np.full(2, floor), moved_share=0.3)
    assert (regret.ratio_after_moves <= regret.ratio_now).all()
    assert (regret.regret >= 0).all()
    assert (regret.regret <= regret.ratio_now - 1 + 1e-9).all()
