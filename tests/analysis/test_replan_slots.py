"""What moves between two placements, and slots that stay."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moescope.analysis.replan import align_slots, count_moves
from moescope.schemas.errors import PlacementError
from tests.analysis.placements import pack_greedily, placement_of


def test_a_change_of_slots_within_a_rank_moves_nothing():
    current = placement_of([[0, 1, 2, 3]], ranks=2, experts=4)
    planned = placement_of([[1, 0, 3, 2]], ranks=2, experts=4)

    assert count_moves(current, planned).tolist() == [0, 0]
    assert align_slots(current, planned).physical_to_logical_map.tolist() == [[0, 1, 2, 3]]


def test_each_rank_counts_what_it_receives():
    current = placement_of([[0, 1, 2, 2, 3, -1]], ranks=2, experts=4)
    planned = placement_of([[0, 3, 2, 2, 3, 1]], ranks=2, experts=4)

    assert count_moves(current, planned).tolist() == [1, 1]


def test_what_comes_fills_the_slots_that_are_left_in_order():
    current = placement_of([[0, 1, 2, 3, 4, 5]], ranks=2, experts=6)
    planned = placement_of([[5, 2, 4, 0, 1, 3]], ranks=2, experts=6)

    assert align_slots(current, planned).physical_to_logical_map.tolist() == [[5, 4, 2, 3, 0, 1]]


def test_ranks_that_changed_names_get_them_back():
    current = placement_of([[0, 1, 2, 3, 4, 5]], ranks=3, experts=6)
    planned = placement_of([[4, 5, 0, 1, 2, 3]], ranks=3, experts=6)

    assert count_moves(current, align_slots(current, planned)).sum() == 6
    relabelled = align_slots(current, planned, relabel_ranks=True)
    assert relabelled.physical_to_logical_map.tolist() == [[0, 1, 2, 3, 4, 5]]


def test_ranks_change_names_within_their_node_only():
    current = placement_of([[0, 1, 2, 3]], ranks=4, experts=4)
    planned = placement_of([[1, 0, 3, 2]], ranks=4, experts=4)
    across = placement_of([[2, 3, 0, 1]], ranks=4, experts=4)

    assert count_moves(current, align_slots(current, planned, relabel_ranks=True, nodes=2)).sum() == 0
    assert count_moves(current, align_slots(current, across, relabel_ranks=True, nodes=2)).sum() == 4


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.booleans(), st.integers(0, 2))
def test_alignment_keeps_every_rank_and_never_moves_more(seed, ranks, relabel, spare):
    rng = np.random.default_rng(seed)
    current = pack_greedily(rng.random((2, 4 * ranks)), ranks=ranks, redundant=spare * ranks)
    planned = pack_greedily(rng.random((2, 4 * ranks)), ranks=ranks, redundant=spare * ranks)

    aligned = align_slots(current, planned, relabel_ranks=relabel)

    def ranks_of(placement):
        table = placement.physical_to_logical_map.reshape(2, ranks, -1)
        rows = [[sorted(held) for held in layer.tolist()] for layer in table]
        return [sorted(layer) for layer in rows] if relabel else rows

    assert ranks_of(aligned) == ranks_of(planned)
    assert count_moves(current, aligned).sum() <= count_moves(current, planned).sum()
    # An expert that stays on its rank stays in its slot.
    before, after = (p.physical_to_logical_map.reshape(2, ranks, -1) for p in (current, aligned))
    for layer in range(2):
        for rank in range(ranks):
            common = set(before[layer, rank].tolist()) & set(after[layer, rank].tolist())
            kept = before[layer, rank][before[layer, rank] == after[layer, rank]]
            assert common <= set(kept.tolist())


def test_placements_of_different_groups_are_not_compared():
    with pytest.raises(PlacementError, match="one model and one group"):
        count_moves(
            placement_of([[0, 1, 2, 3]], ranks=2, experts=4), placement_of([[0, 1, 2, 3]], ranks=4, experts=4)
        )
