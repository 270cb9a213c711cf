import os
import signal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from moescope.collector.expert_load import Row
from moescope.collector.hooks.sglang_counter import open_counter
from moescope.collector.rank_io import NumpyRankIoCounter, RankIoCounter
from moescope.collector.rank_io_torch import TorchRankIoCounter

pytestmark = pytest.mark.engine

PEERS = np.array([[0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0], [3, 2, 1, 0, 3, 2, 1, 0, 3, 2, 1, 0, 3]])


def counters():
    made = [TorchRankIoCounter(2, 13, 79, ep_size=4), NumpyRankIoCounter(2, 13, ep_size=4)]
    for counter in made:
        counter.set_peers(PEERS)
    return made


@given(
    steps=st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from(Row), st.integers(0, 23)), max_size=5),
            st.integers(0, 101),
            st.sampled_from((torch.int16, torch.int32, torch.int64)),
            st.integers(0, 2**32 - 1),
        ),
        max_size=5,
    )
)
def test_it_counts_exactly_as_the_plain_counter_does(steps):
    ours, plain = counters()
    for layout, num_tokens, dtype, seed in steps:
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(-2, 13 + 6, (num_tokens, 3), generator=generator).to(dtype)
        for layer in (0, 1):
            for counter in (ours, plain):
                counter.set_layout(layout if sum(n for _, n in layout) <= 79 else ())
            ours.add(layer, ids)
            plain.add(layer, ids.to(torch.int64).numpy())

    assert np.array_equal(ours.read(), plain.read())
    assert np.array_equal(ours.read_rank_tokens(), plain.read_rank_tokens())


def test_a_rank_that_routes_a_slice_of_its_rows_counts_tokens_by_what_those_rows_are():
    counter = open_counter(1, 13, 79, "cpu", ep_size=4, shard=1, by_peer=True)
    counter.set_peers(PEERS[:1])
    counter.set_layout([(Row.PREFILL, 13), (Row.DECODE, 5)])  # rows 10 to 19 are this rank's

    counter.add(0, torch.tensor([[0, 1, 12], [3, 9, 4]]).repeat(5, 1))

    assert counter.read_rank_tokens().tolist() == [[2, 1, 0, 1], [2, 3, 0, 3]]


def test_it_is_a_counter_by_rank():
    assert isinstance(TorchRankIoCounter(1, 13, 79, ep_size=4), RankIoCounter)


# Inductor still uses what torch itself calls deprecated.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
def test_a_traced_graph_counts_exactly_and_follows_layout_and_placement():
    ours, plain = counters()

    @torch.compile(fullgraph=True, dynamic=True)
    def step(ids):
        ours.add(0, ids)
        ours.add(1, ids)
        return ids + 1

    for row, num_tokens in ((Row.PREFILL, 23), (Row.DECODE, 5), (Row.PREFILL, 13)):
        ids = torch.arange(num_tokens * 3, dtype=torch.int32).view(-1, 3) % 13
        for counter in (ours, plain):
            counter.set_layout([(row, num_tokens)])
            counter.set_peers((PEERS + num_tokens) % 4)
        step(ids)
        for layer in (0, 1):
            plain.add(layer, ids.numpy())

    assert np.array_equal(ours.read_rank_tokens(), plain.read_rank_tokens())
    assert ours.read_rank_tokens().sum() > 0


def test_a_counter_made_in_inference_mode_counts_outside_of_it_and_the_other_way_round():
    with torch.inference_mode():
        counter = TorchRankIoCounter(1, 13, 79, ep_size=4)
        counter.set_peers(PEERS[:1])
    counter.set_layout([(Row.DECODE, 79)])

    counter.add(0, torch.zeros((5, 1), dtype=torch.int32))
    counter.set_peers(PEERS[1:])
    with torch.inference_mode():
        counter.add(0, torch.zeros((13, 1), dtype=torch.int64))
    counter.add(0, torch.zeros((13, 1), dtype=torch.int64))

    assert counter.read_rank_tokens()[Row.DECODE].tolist() == [5, 0, 0, 26]


def test_a_child_forked_in_the_middle_of_a_read_can_read_all_the_same():
    counter, _ = counters()
    counter.set_layout([(Row.DECODE, 79)])
    counter.add(0, torch.zeros((23, 1), dtype=torch.int64))
    with counter.reads_paused():
        pid = os.fork()
        if pid == 0:
            signal.alarm(13)  # rather than hang
            os._exit(int(counter.read_rank_tokens().sum()))

    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 23
