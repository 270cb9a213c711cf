import os
import signal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from moescope.collector.device_copy import DeviceCopy
from moescope.collector.expert_load import NumpyExpertCounter, Row
from moescope.collector.expert_load_torch import TorchExpertCounter

pytestmark = pytest.mark.engine

SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32)


def count(layout, *ids, num_experts=13, max_tokens=79):
    counter = TorchExpertCounter(1, num_experts, max_tokens)
    counter.set_layout(layout)
    for some in ids:
        counter.add(0, some)
    return counter.read()[0]


@given(
    steps=st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from(Row), st.integers(0, 23)), max_size=5),
            st.integers(0, 101),
            st.sampled_from(SIGNED + UNSIGNED),
            st.integers(0, 2**32 - 1),
        ),
        max_size=5,
    )
)
def test_it_counts_exactly_as_the_plain_counter_does(steps):
    counters = [TorchExpertCounter(2, 13, max_tokens=79), NumpyExpertCounter(2, 13)]
    for layout, num_tokens, dtype, seed in steps:
        low = -2 if dtype in SIGNED else 0
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(low, 13 + 6, (num_tokens, 3), generator=generator).to(dtype)
        for counter, its_ids in zip(counters, (ids, ids.to(torch.int64).numpy()), strict=True):
            # Only the torch counter has a limit: beyond it a row is padding.
            counter.set_layout(layout if sum(n for _, n in layout) <= 79 else ())
            counter.add(1, its_ids)

    assert np.array_equal(counters[0].read(), counters[1].read())


@pytest.mark.parametrize("dtype", SIGNED)
def test_ids_outside_the_model_stay_in_the_guard_columns_of_their_own_row(dtype):
    ids = torch.tensor([[-1, 13, 13 + 5, 12, 0, -128]], dtype=dtype)

    counts = count([(Row.DECODE, 1)], ids)

    assert counts[Row.DECODE].tolist() == [2, 1, *[0] * 11, 1, 2]
    assert counts.sum() == 6


def test_the_largest_ids_of_a_dtype_do_not_wrap_into_a_row():
    for ids in (
        torch.tensor([[2**63 - 1, -(2**63)]], dtype=torch.int64),
        torch.tensor([[2**31 - 1, -(2**31)]], dtype=torch.int32),
    ):
        counts = count([(Row.PREFILL, 1)], ids)
        assert (counts[Row.PREFILL, 0], counts[Row.PREFILL, -1]) == (1, 1)


def test_more_rows_than_a_layout_is_kept_for_are_padding_and_no_error():
    counts = count([(Row.DECODE, 79)], torch.full((101, 1), 7))

    assert counts[Row.DECODE, 8] == 79
    assert counts[Row.PADDING, 8] == 101 - 79


def test_a_layout_longer_than_the_limit_is_cut():
    counts = count([(Row.DECODE, 101)], torch.full((23, 1), 7))

    assert counts[Row.DECODE, 8] == 23


def test_a_shorter_layout_leaves_nothing_of_the_longer_one_before():
    counter = TorchExpertCounter(1, 13, 79)
    counter.set_layout([(Row.PREFILL, 23)])
    counter.set_layout([(Row.DECODE, 2)])

    counter.add(0, torch.zeros((23, 1), dtype=torch.int64))

    assert counter.read()[0, :, 1].tolist() == [0, 2, 21, 0, 0]


def test_ids_need_not_be_contiguous():
    ids = torch.arange(12).view(3, 4).t()

    counts = count([(Row.DECODE, 4)], ids)

    assert counts[Row.DECODE, 1:-1].tolist() == [*[1] * 12, 0]


def test_read_hands_out_a_copy():
    counter = TorchExpertCounter(1, 13, 79)
    counter.set_layout([(Row.DECODE, 79)])
    before = counter.read()

    counter.add(0, torch.zeros((1, 1), dtype=torch.int32))

    assert before.sum() == 0
    assert counter.read().sum() == 1


def test_a_counter_made_in_inference_mode_counts_outside_of_it_and_the_other_way_round():
    with torch.inference_mode():
        counter = TorchExpertCounter(1, 13, 79)
    counter.set_layout([(Row.DECODE, 79)])

    counter.add(0, torch.zeros((5, 1), dtype=torch.int32))
    with torch.inference_mode():
        counter.set_layout([(Row.PREFILL, 79)])
        counter.add(0, torch.zeros((13, 1), dtype=torch.int64))
    counter.add(0, torch.zeros((13, 1), dtype=torch.int64))

    assert counter.read()[0, : Row.PADDING, 1].tolist() == [26, 5]


# Inductor still uses what torch itself calls deprecated.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
def test_a_traced_graph_counts_exactly_and_follows_the_layout():
    counter = TorchExpertCounter(2, 13, 79)

    @torch.compile(fullgraph=True, dynamic=True)
    def step(ids):
        counter.add(0, ids)
        counter.add(1, ids)
        return ids + 1

    for row, num_tokens in ((Row.PREFILL, 23), (Row.DECODE, 5), (Row.PREFILL, 13)):
        counter.set_layout([(row, num_tokens)])
        step(torch.full((num_tokens, 3), 7, dtype=torch.int32))

    assert counter.read()[:, : Row.PADDING, 8].tolist() == [[3 * 36, 3 * 5]] * 2


def test_a_child_forked_in_the_middle_of_a_read_can_read_all_the_same():
    counter = TorchExpertCounter(1, 13, 79)
    counter.set_layout([(Row.DECODE, 79)])
    counter.add(0, torch.zeros((23, 1), dtype=torch.int64))
    with counter.reads_paused():
        pid = os.fork()
        if pid == 0:
            signal.alarm(13)  # rather than hang
            os._exit(int(counter.read().sum()))

    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 23


def test_a_copy_that_was_started_is_picked_up_later():
    copy = DeviceCopy(torch.arange(5, dtype=torch.int32))
    copy.start()

    values = copy.poll()

    assert values.tolist() == [0, 1, 2, 3, 4]
    assert values.dtype == np.int64
