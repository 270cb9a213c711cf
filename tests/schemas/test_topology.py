import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moescope.schemas.errors import PlacementError, ShapeError
from moescope.schemas.topology import (
    MODEL_SHAPES,
    ModelShape,
    Placement,
    RankGrid,
    every_layer_from,
    place_contiguously,
    place_replicas,
)


def test_kimi_k3_has_92_moe_layers_the_first_layer_being_dense():
    shape = MODEL_SHAPES["kimi-k3"]

    assert (shape.num_layers, shape.num_moe_layers) == (93, 92)
    assert (shape.num_experts, shape.top_k) == (896, 16)
    assert shape.layer_index[[0, -1]].tolist() == [1, 92]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("m", 4, (0, 1), 8, 9), "top-9 of 8"),
        (("m", 4, (0, 1), 8, 0), "top-0 of 8"),
        (("m", 4, (), 8, 2), "without MoE layers"),
        (("m", 4, (1, 1), 8, 2), "increasing"),
        (("m", 4, (2, 4), 8, 2), "below 4"),
    ],
)
def test_impossible_shape_is_refused(arguments, words: str):
    with pytest.raises(ShapeError, match=words):
        ModelShape(*arguments)


def test_rank_outside_its_group_is_refused():
    with pytest.raises(ShapeError, match="EP rank 8 is outside a group of 8"):
        RankGrid("0", 8, 8)


def test_contiguous_placement_gives_the_first_ranks_one_more_where_it_does_not_divide():
    placement = place_contiguously(every_layer_from("m", 0, 1, num_experts=7, top_k=2), 3)

    assert placement.physical_to_logical_map.tolist() == [[0, 1, 2, 3, 4, -1, 5, 6, -1]]


@given(experts=st.integers(1, 97), ranks=st.integers(1, 13))
def test_contiguous_placement_holds_every_expert_exactly_once(experts: int, ranks: int):
    shape = every_layer_from("m", 0, 2, num_experts=experts, top_k=1)

    placement = place_contiguously(shape, ranks)

    assert (placement.replicas_per_layer_expert() == 1).all()
    held = placement.replicas_per_rank_layer_expert().sum(axis=2)[:, 0]
    assert held.max() - held.min() <= 1


def test_copies_are_counted_by_rank():
    placement = Placement(np.array([[0, 1, 1, 1]]), ep_size=2, num_experts=2)

    assert placement.replicas_per_rank_layer_expert().tolist() == [[[1, 1]], [[0, 2]]]
    assert placement.slots_per_rank == 2


@pytest.mark.parametrize(
    ("table", "ranks", "words"),
    [
        ([[0, 1, 2]], 2, "3 slots do not divide over 2 ranks"),
        ([[0, 1, 4, 2]], 2, "outside −1 … 2"),
        ([[0, 1, -2, 2]], 2, "outside −1 … 2"),
        ([[0, 1, 1, -1]], 2, "expert 2 of MoE layer row 0 has no copy"),
        ([0, 1, 2], 1, "1 axes"),
    ],
)
def test_placement_that_no_engine_could_serve_from_is_refused(table, ranks: int, words: str):
    with pytest.raises(PlacementError, match=words):
        Placement(np.array(table), ranks, num_experts=3)


def test_copies_become_slots_in_rising_order_with_empty_ones_last():
    copies = np.zeros((2, 1, 3), dtype=np.uint16)
    copies[0, 0] = [1, 0, 2]
    copies[1, 0] = [0, 1, 0]

    placement = place_replicas(copies)

    assert placement.physical_to_logical_map.tolist() == [[0, 2, 2, 1, -1, -1]]
    assert placement.same_rank_duplicates() == 1


@given(st.integers(1, 13), st.integers(1, 5), st.integers(0, 7))
def test_a_placement_survives_the_way_over_its_copies(experts: int, ranks: int, seed: int):
    shape = every_layer_from("odd", 0, 3, num_experts=experts, top_k=1)
    rng = np.random.default_rng(seed)
    copies = place_contiguously(shape, ranks).replicas_per_rank_layer_expert()
    copies += rng.integers(0, 2, copies.shape)

    again = place_replicas(copies).replicas_per_rank_layer_expert()

    assert (again == copies).all()


def test_copies_without_one_of_some_expert_are_no_placement():
    with pytest.raises(PlacementError, match="expert 1 of MoE layer row 0"):
        place_replicas(np.array([[[1, 0]], [[2, 0]]]))
