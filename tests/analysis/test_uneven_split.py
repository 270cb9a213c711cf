"""The best uneven split of a placement, by hand and by its own rules."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moescope.analysis.placement_score import balance_ratio
from moescope.analysis.uneven_split import split_unevenly
from tests.analysis.placements import placement_of


def test_a_copy_beside_a_heavy_neighbour_gets_less():
    # Rank 0: experts 0 and 1, rank 1: experts 0 and 2. Expert 1 is heavier, so rank 1 takes more of expert 0.
    placement = placement_of([[0, 1, 0, 2]], ranks=2, experts=3)
    tokens = np.array([[40, 30, 10]])

    split = split_unevenly(tokens, placement)

    assert split.ratio_even.tolist() == [50 / 40]
    assert split.ratio_uneven == pytest.approx([1.0])
    assert split.share_per_slot == pytest.approx(np.array([[0.25, 1, 0.75, 1]]))
    assert "lp" in split.label


def test_without_second_copies_there_is_nothing_to_split():
    placement = placement_of([[0, 1, 2, -1]], ranks=2, experts=3)

    split = split_unevenly(np.array([[13, 23, 6]]), placement)

    assert split.share_per_slot.tolist() == [[1, 1, 1, 0]]
    assert split.ratio_uneven.tolist() == split.ratio_even.tolist()


def test_a_layer_without_tokens_is_split_evenly():
    split = split_unevenly(np.zeros((1, 3)), placement_of([[0, 1, 0, 2]], ranks=2, experts=3))

    assert split.share_per_slot.tolist() == [[0.5, 1, 0.5, 1]]
    assert split.ratio_uneven.tolist() == [1.0]


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 11), st.integers(0, 2))
def test_shares_add_up_and_no_rank_has_more_than_the_ratio_says(seed, ranks, experts, spare):
    rng = np.random.default_rng(seed)
    slots = (-(-experts // ranks) + spare) * ranks
    row = np.concatenate([np.arange(experts), rng.integers(-1, experts, slots - experts)])
    placement = placement_of([rng.permutation(row)] * 2, ranks=ranks, experts=experts)
    tokens = np.floor(rng.pareto(1, (2, experts)) * 13)

    split = split_unevenly(tokens, placement)

    table = placement.physical_to_logical_map
    for layer in range(2):
        for expert in range(experts):
            assert split.share_per_slot[layer, table[layer] == expert].sum() == pytest.approx(1)
        assert not split.share_per_slot[layer, table[layer] == -1].any()
        loads = (np.append(tokens[layer], 0)[table[layer]] * split.share_per_slot[layer]).reshape(ranks, -1)
        mean = tokens[layer].sum() / ranks
        if mean:
            assert loads.sum(axis=1).max() / mean == pytest.approx(split.ratio_uneven[layer])
    assert (split.ratio_uneven <= split.ratio_even).all()
    assert split.ratio_even == pytest.approx(balance_ratio(tokens, placement))
    assert (split.ratio_uneven >= 1 - 1e-9).all()


def test_no_split_can_beat_the_experts_that_a_set_of_ranks_alone_holds():
    # Experts 0 and 1 live on ranks 0 and 1 only: those two compute 60 of 80 at least.
    placement = placement_of([[0, 1, 0, 1, 2, -1, 3, -1]], ranks=4, experts=4)

    split = split_unevenly(np.array([[40, 20, 10, 10]]), placement)

    assert split.ratio_uneven == pytest.approx([30 / 20])
