import numpy as np
import pytest

from moescope.analysis.placement_score import balance_ratio, rank_loads
from moescope.schemas.errors import ShapeError
from moescope.schemas.topology import Placement

TWO_RANKS = Placement(np.array([[0, 1, 2, 0]]), ep_size=2, num_experts=3)


def test_an_experts_tokens_are_split_evenly_over_its_copies() -> None:
    assert rank_loads(np.array([[26, 10, 4]]), TWO_RANKS).tolist() == [[23.0, 17.0]]


def test_the_ratio_is_the_fullest_rank_over_the_mean() -> None:
    assert balance_ratio(np.array([[26, 10, 4]]), TWO_RANKS).tolist() == [23 / 20]


def test_a_layer_without_tokens_is_balanced() -> None:
    assert balance_ratio(np.zeros((1, 3)), TWO_RANKS).tolist() == [1.0]


def test_an_empty_slot_computes_nothing() -> None:
    placement = Placement(np.array([[0, -1, 1, 2]]), ep_size=2, num_experts=3)
    assert rank_loads(np.array([[13, 10, 4]]), placement).tolist() == [[13.0, 14.0]]


def test_two_copies_on_one_rank_make_it_compute_both_shares() -> None:
    placement = Placement(np.array([[0, 0, 1, 2]]), ep_size=2, num_experts=3)
    assert rank_loads(np.array([[13, 10, 4]]), placement).tolist() == [[13.0, 14.0]]


def test_tokens_of_another_model_are_refused() -> None:
    with pytest.raises(ShapeError, match="1 layers of 3 experts"):
        rank_loads(np.ones((1, 4)), TWO_RANKS)
