import numpy as np
import pytest

from moescope.collector.recordings.warmup import find_identical_rows, is_identical_pass

RNG = np.random.default_rng(13)


def routes(tokens: int, layers: int = 4, experts: int = 32, top_k: int = 8) -> np.ndarray:
    return np.argsort(RNG.random((layers, tokens, experts)), axis=2)[:, :, :top_k].astype(np.int32)


def test_a_block_of_one_route_is_found_in_the_midst_of_text():
    ids = routes(79)
    ids[:, 23:46] = ids[:, 23:24]

    assert np.flatnonzero(find_identical_rows(ids)).tolist() == list(range(23, 46))


def test_text_and_a_word_that_is_repeated_are_no_warmup():
    ids = routes(79)
    ids[:, 23 : 23 + 15] = ids[:, 23:24]

    assert not find_identical_rows(ids).any()


def test_one_layer_that_differs_is_enough_to_be_text():
    ids = np.repeat(routes(1), 79, axis=1)
    ids[2] = routes(79)[2]

    assert not find_identical_rows(ids).any()


def test_tokens_that_were_not_recorded_are_no_warmup():
    assert not find_identical_rows(np.full((4, 79, 8), -1)).any()


@pytest.mark.parametrize("tokens", [16, 79])
def test_a_pass_whose_tokens_all_took_one_route_is_known_by_its_counts(tokens: int):
    counts = np.zeros((4, 32), dtype=np.int64)
    for layer in (1, 2, 3):  # the first is dense
        counts[layer, RNG.permutation(32)[:8]] = tokens

    assert is_identical_pass(counts, top_k=8)
    assert not is_identical_pass(counts, top_k=4)
    counts[2, counts[2].argmax()] -= 1
    assert not is_identical_pass(counts, top_k=8)


def test_few_tokens_are_never_taken_for_warmup():
    counts = np.zeros((4, 32), dtype=np.int64)
    counts[:, :8] = 15

    assert not is_identical_pass(counts, top_k=8)
    assert not is_identical_pass(np.zeros_like(counts), top_k=8)
