import pytest

from moescope.collector.prefix_cache import prefix_cache_tokens
from moescope.schemas.attributes import CacheResult


@pytest.mark.parametrize(
    ("prompt", "cached", "block", "expected"),
    [
        (79, 64, 16, {CacheResult.HIT: 64, CacheResult.MISS: 15}),
        (80, 64, 16, {CacheResult.HIT: 64, CacheResult.MISS: 16}),
        (81, 64, 16, {CacheResult.PARTIAL_HIT: 64, CacheResult.MISS: 17}),
        (79, 78, 1, {CacheResult.HIT: 78, CacheResult.MISS: 1}),
        (79, 0, 16, {CacheResult.PARTIAL_HIT: 0, CacheResult.MISS: 79}),
    ],
)
def test_a_prompt_found_as_far_as_blocks_go_is_a_hit_and_any_other_a_partial_one(
    prompt, cached, block, expected
):
    assert prefix_cache_tokens(prompt, cached, block) == expected


def test_every_prompt_token_is_hit_partial_hit_or_miss():
    for prompt in range(1, 131):
        for cached in range(0, prompt, 16):
            found = prefix_cache_tokens(prompt, cached, 16)
            assert sum(found.values()) == prompt
            assert found[CacheResult.MISS] == prompt - cached
