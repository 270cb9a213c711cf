from types import SimpleNamespace

import pytest
import torch

from moescope.collector.expert_load import Row
from moescope.collector.hooks.transformers_batch import segments_of_forward

pytestmark = pytest.mark.engine


def ids(batch, positions):
    return torch.zeros((batch, positions), dtype=torch.int64)


def cache(length):
    return SimpleNamespace(get_seq_length=lambda: length)


LEFT_PADDED = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])


def test_more_than_one_new_position_is_a_prompt():
    assert segments_of_forward({"input_ids": ids(3, 13)}) == ((Row.PREFILL, 39),)


def test_one_position_over_a_filled_cache_is_decoding():
    inputs = {"input_ids": ids(3, 1), "past_key_values": cache(13)}

    assert segments_of_forward(inputs) == ((Row.DECODE, 3),)


def test_one_position_over_an_empty_cache_is_a_prompt_of_one_token():
    inputs = {"input_ids": ids(3, 1), "past_key_values": cache(0), "attention_mask": torch.ones((3, 1))}

    assert segments_of_forward(inputs) == ((Row.PREFILL, 3),)


def test_a_mask_longer_than_the_new_positions_tells_of_the_past_without_asking_the_cache():
    inputs = {"input_ids": ids(2, 1), "attention_mask": torch.ones((2, 24)), "past_key_values": None}

    assert segments_of_forward(inputs) == ((Row.DECODE, 2),)


def test_embeddings_count_as_tokens_do():
    assert segments_of_forward({"inputs_embeds": torch.zeros(2, 5, 64)}) == ((Row.PREFILL, 10),)


def test_padded_positions_are_padding():
    inputs = {"input_ids": ids(2, 4), "attention_mask": LEFT_PADDED}

    assert segments_of_forward(inputs) == ((Row.PREFILL, 4), (Row.PADDING, 2), (Row.PREFILL, 2))


def test_of_a_mask_that_covers_the_past_too_only_the_new_positions_are_read():
    mask = torch.tensor([[0, 0, 1, 1, 1, 1]])

    assert segments_of_forward({"input_ids": ids(1, 3), "attention_mask": mask}) == ((Row.PREFILL, 3),)


def square(dtype):
    """What a static cache of 6 positions gets for ``LEFT_PADDED``: [batch, 1, queries, keys]."""
    allowed = torch.zeros((2, 1, 4, 6), dtype=torch.bool)
    for query in range(4):
        allowed[:, 0, query, : query + 1] = LEFT_PADDED[:, : query + 1].bool()
    return allowed if dtype is bool else torch.where(allowed, 0.0, torch.finfo(dtype).min)


@pytest.mark.parametrize("dtype", [bool, torch.float32])
@pytest.mark.parametrize("wrap", [lambda mask: mask, lambda mask: {"full": None, "sliding": mask}])
def test_a_prepared_mask_tells_of_padding_too(dtype, wrap):
    inputs = {"input_ids": ids(2, 4), "attention_mask": wrap(square(dtype)), "past_key_values": cache(0)}

    assert segments_of_forward(inputs) == ((Row.PREFILL, 4), (Row.PADDING, 2), (Row.PREFILL, 2))


def test_a_prepared_mask_over_a_filled_static_cache_is_decoding():
    inputs = {
        "input_ids": ids(2, 1),
        "attention_mask": torch.ones((2, 1, 1, 9), dtype=torch.bool),
        "past_key_values": cache(torch.tensor(7)),
    }

    assert segments_of_forward(inputs) == ((Row.DECODE, 2),)
