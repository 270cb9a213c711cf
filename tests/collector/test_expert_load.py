import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from moescope.collector.expert_load import GUARDS, NUM_ROWS, NumpyExpertCounter, Row
from moescope.schemas.errors import ShapeError


def test_each_row_is_counted_for_what_it_was_computed_for():
    counter = NumpyExpertCounter(num_moe_layers=2, num_experts=4)
    counter.set_layout([(Row.PREFILL, 2), (Row.DECODE, 1)])

    counter.add(1, np.array([[0, 1], [1, 2], [3, 1]]))

    counts = counter.read()
    assert counts[1, Row.PREFILL, 1:-1].tolist() == [1, 2, 1, 0]
    assert counts[1, Row.DECODE, 1:-1].tolist() == [0, 1, 0, 1]
    assert counts.sum() == 6


def test_rows_beyond_the_layout_are_padding():
    counter = NumpyExpertCounter(1, 4)
    counter.set_layout([(Row.DECODE, 1)])

    counter.add(0, np.array([[2], [2], [2]]))

    counts = counter.read()[0]
    assert counts[Row.DECODE, 3] == 1
    assert counts[Row.PADDING, 3] == 2


def test_ids_outside_the_model_stay_in_the_guard_columns_of_their_own_row():
    counter = NumpyExpertCounter(1, 4)
    counter.set_layout([(Row.PREFILL, 1)])

    counter.add(0, np.array([[-1, 4, 9, -7]], dtype=np.int32))

    counts = counter.read()[0]
    assert counts[Row.PREFILL].tolist() == [2, 0, 0, 0, 0, 2]
    assert counts.sum() == 4


def test_read_hands_out_a_copy():
    counter = NumpyExpertCounter(1, 4)
    before = counter.read()

    counter.set_layout([(Row.DECODE, 1)])
    counter.add(0, np.array([[0]]))

    assert before.sum() == 0


def test_ids_with_one_axis_are_refused():
    with pytest.raises(ShapeError, match=r"1 axes, expected \[tokens, top_k\]"):
        NumpyExpertCounter(1, 4).add(0, np.array([0, 1]))


@given(
    ids=arrays(np.int64, st.tuples(st.integers(0, 23), st.integers(1, 5)), elements=st.integers(-3, 16)),
    prefill=st.integers(0, 13),
    decode=st.integers(0, 13),
)
def test_every_id_is_counted_exactly_once_and_in_its_own_row(ids: np.ndarray, prefill: int, decode: int):
    counter = NumpyExpertCounter(1, 13)
    counter.set_layout([(Row.PREFILL, prefill), (Row.DECODE, decode)])

    counter.add(0, ids)

    counts = counter.read()
    assert counts.shape == (1, NUM_ROWS, 13 + GUARDS)
    top_k = ids.shape[1]
    assert counts[0, Row.PREFILL].sum() == min(len(ids), prefill) * top_k
    assert counts[0, Row.DECODE].sum() == min(max(len(ids) - prefill, 0), decode) * top_k
    assert counts.sum() == ids.size
    assert counts[0, :, 1:-1].sum(axis=0).tolist() == [int((ids == expert).sum()) for expert in range(13)]
