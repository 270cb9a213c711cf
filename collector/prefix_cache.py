"""What a prefix cache answered for the tokens of a prompt."""

from __future__ import annotations

from moescope.schemas.attributes import CacheResult


def prefix_cache_tokens(prompt_tokens: int, cached_tokens: int, block_tokens: int) -> dict[CacheResult, int]:
    """What the prefix cache answered for the tokens of one prompt.

    Whole blocks are found, and the last token is always computed: so at most a block's worth is left of a
    prompt that was found as far as can be. Its found tokens are hits; those of any other prompt are partial
    hits; what was computed is a miss. ``cached_tokens`` are those found when the request was first
    scheduled: what is found again after a preemption is no hit.
    """
    is_whole = prompt_tokens - cached_tokens <= block_tokens
    return {
        CacheResult.HIT if is_whole else CacheResult.PARTIAL_HIT: cached_tokens,
        CacheResult.MISS: prompt_tokens - cached_tokens,
    }
