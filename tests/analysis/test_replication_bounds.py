"""Bounds against every placement there is, on cases that are small enough to look at all of them."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moescope.analysis.replication import PlanRules, plan_replication
from moescope.analysis.replication_bounds import lower_bounds
from moescope.analysis.replication_counts import minimax_counts


def best_ratio(tokens: list[int], ranks: int, redundant_experts: int) -> float:
    """Max / mean of the best placement that fills all slots: tries every one."""
    copies = len(tokens) + redundant_experts
    slots = -(-copies // ranks)
    best = np.inf
    for counts in product(range(1, ranks + 1), repeat=len(tokens)):
        if sum(counts) == copies:
            best = min(best, least_max(tokens, counts, [0.0] * ranks, [slots] * ranks))
    return best / (sum(tokens) / ranks)


def least_max(tokens: list[int], counts: tuple[int, ...], load: list[float], room: list[int]) -> float:
    """Least load of the fullest rank, the remaining experts placed on each choice of ranks in turn."""
    if not counts:
        return max(load)
    best = np.inf
    for chosen in combinations([rank for rank, left in enumerate(room) if left], counts[0]):
        share = [load[rank] + tokens[0] / counts[0] * (rank in chosen) for rank in range(len(load))]
        left = [room[rank] - (rank in chosen) for rank in range(len(load))]
        best = min(best, least_max(tokens[1:], counts[1:], share, left))
    return best


@pytest.mark.parametrize(
    ("experts", "ranks", "redundant_experts"),
    [(6, 2, 0), (6, 2, 2), (5, 3, 1), (4, 3, 3), (6, 3, 0), (5, 2, 1)],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_plan_lies_between_its_bound_and_half_a_percent_over_the_best(
    experts: int, ranks: int, redundant_experts: int, seed: int
) -> None:
    tokens = np.rint(np.random.default_rng(seed).lognormal(5, 0.7, experts)).astype(int).tolist()
    plan = plan_replication([tokens], PlanRules(ranks=ranks, redundant_experts=redundant_experts))
    best = best_ratio(tokens, ranks, redundant_experts)
    assert plan.bound[0] <= best * (1 + 1e-12)
    assert plan.ratio[0] <= best * 1.005


@pytest.mark.parametrize(
    ("tokens", "ranks", "bound", "why"),
    [
        ([90, 2, 3, 5], 2, 92 / 50, "the heaviest has the lightest beside it"),
        ([40, 40, 40, 1, 2, 3], 2, 81 / 63, "of three heavy ones two share a rank, with the lightest"),
        ([25, 25, 25, 25], 2, 1.0, "the mean"),
        ([97, 1, 1, 1], 4, 97 / 25, "the heaviest alone"),
        ([90, 2, 3], 2, 90 / 47.5, "an empty slot can stand beside the heaviest"),
        (
            [60, 59, 2, 3, 4, 5, 6, 7, 8],
            3,
            66.5 * 3 / 154,
            "two heavy ones have the four lightest beside them",
        ),
    ],
)
def test_without_spare_copies_the_heaviest_experts_bound_the_ratio(
    tokens: list[int], ranks: int, bound: float, why: str
) -> None:
    plan = plan_replication([tokens], PlanRules(ranks=ranks))
    assert plan.bound[0] == pytest.approx(bound), why
    assert plan.bound[0] <= best_ratio(tokens, ranks, 0) * (1 + 1e-12)


loads = st.lists(st.integers(0, 300), min_size=1, max_size=12)


@given(loads, st.integers(1, 6), st.integers(0, 40))
def test_copies_are_given_to_the_largest_load_per_copy(tokens: list[int], most: int, spare: int) -> None:
    load = np.array([sorted(tokens, reverse=True)], dtype=float)
    counts = minimax_counts(load, np.array([len(tokens) + spare]), most)[0]
    assert counts.sum() == min(len(tokens) + spare, len(tokens) * most)
    assert counts.min() >= 1
    assert counts.max() <= most
    # No copy could be moved from one expert to another and lower the largest load per copy.
    taken = np.where(counts > 1, load[0] / np.maximum(counts - 1, 1), np.inf).min()
    left = np.where(counts < most, load[0] / counts, 0).max()
    assert taken >= left * (1 - 1e-9) - 1e-9


@settings(max_examples=40)
@given(st.lists(st.integers(1, 50), min_size=2, max_size=5), st.integers(2, 3), st.integers(0, 2))
def test_no_placement_goes_below_the_bound(tokens: list[int], ranks: int, redundant_experts: int) -> None:
    redundant_experts = min(redundant_experts, len(tokens) * (ranks - 1))
    load = np.array([sorted(tokens, reverse=True)], dtype=float) / (sum(tokens) / ranks)
    copies = np.array([len(tokens) + redundant_experts])
    capacity = np.full((1, ranks), -(-copies[0] // ranks))
    bound = lower_bounds(load, minimax_counts(load, copies, ranks), capacity, copies)
    assert bound[0] <= best_ratio(tokens, ranks, redundant_experts) * (1 + 1e-9)


def test_ranks_without_a_slot_take_nothing_off_the_others() -> None:
    plan = plan_replication([[3, 1, 1, 1, 2]], PlanRules(ranks=3, slots_per_rank=(4, 0, 3)))

    assert plan.bound[0] == pytest.approx(1.5)
    assert plan.ratio[0] == pytest.approx(1.5)
