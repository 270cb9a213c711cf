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
