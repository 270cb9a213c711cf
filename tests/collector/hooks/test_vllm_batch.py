import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moescope.collector.expert_load import Row
from moescope.collector.hooks.vllm_batch import own_rows, segments_of_requests, shard_of


def segments(is_prefill, num_tokens):
    return segments_of_requests(np.array(is_prefill, dtype=bool), np.array(num_tokens, dtype=np.int32))


def test_a_batch_that_only_decodes_is_one_segment():
    assert segments([False] * 5, [1, 1, 1, 1, 1]) == ((Row.DECODE, 5),)


def test_neighbours_of_one_phase_are_joined_in_batch_order():
    mixed = segments([False, False, True, True, False, True], [1, 1, 13, 23, 1, 79])

    assert mixed == ((Row.DECODE, 2), (Row.PREFILL, 36), (Row.DECODE, 1), (Row.PREFILL, 79))


def test_a_batch_that_only_computes_prompts_is_one_segment():
    assert segments([True, True], [13, 23]) == ((Row.PREFILL, 36),)


def test_a_shard_has_the_rows_of_its_rank_and_leaves_padding_unnamed():
    batch = ((Row.DECODE, 3), (Row.PREFILL, 4))  # 7 rows, padded to 8: two a rank

    assert [shard_of(batch, 8, rank, 4) for rank in range(4)] == [
        ((Row.DECODE, 2),),
        ((Row.DECODE, 1), (Row.PREFILL, 1)),
        ((Row.PREFILL, 2),),
        ((Row.PREFILL, 1),),
    ]


@given(st.lists(st.tuples(st.sampled_from(Row), st.integers(1, 23))), st.integers(0, 13), st.integers(1, 7))
def test_shards_lose_and_double_no_row(batch, padding, size):
    num_rows = sum(tokens for _, tokens in batch) + padding

    shards = [shard_of(batch, num_rows, rank, size) for rank in range(size)]

    for row in Row:
        tokens = sum(n for shard in shards for kind, n in shard if kind is row)
        assert tokens == sum(n for kind, n in batch if kind is row)


def test_ids_of_this_rank_alone_are_all_its_own():
    assert own_rows(23, [13, 23, 79], dp_rank=1) == slice(0, 23)


def test_of_ids_gathered_from_every_rank_only_a_span_is_its_own():
    assert own_rows(13 + 23 + 79, [13, 23, 79], dp_rank=1) == slice(13, 36)


def test_a_lone_rank_with_tokens_finds_them_among_idle_ones():
    assert own_rows(5, [0, 5, 0], dp_rank=1) == slice(0, 5)


def test_sequence_parallel_shards_are_gathered_in_data_then_tensor_order():
    # 13 rows over two tensor ranks are shards of 7, 5 rows shards of 3.
    assert own_rows(7, [13, 5], dp_rank=0, tp_rank=1, sp_size=2) == slice(0, 7)
    assert own_rows(20, [13, 5], dp_rank=0, tp_rank=1, sp_size=2) == slice(7, 14)
    assert own_rows(20, [13, 5], dp_rank=1, tp_rank=0, sp_size=2) == slice(14, 17)


@pytest.mark.parametrize("num_ids", [1, 14, 37])
def test_rows_that_fit_nobody_are_nobodys(num_ids):
    assert own_rows(num_ids, [13, 23], dp_rank=0) is None
