"""vLLM 0.32's own pages: `pages/README.md` says which requests lie between them."""

import pytest

from moescope.schemas import metrics as m
from tests.collector.scrape.conftest import Told, page

REQUESTS = [(401, 7), (101, 1), (23, 13), (5, 2), (3, 1)]
HIT_TOKENS = 384


def test_what_came_between_two_pages_is_what_was_asked_for(told: Told):
    window = told.follow(page("vllm_0.32_before"), page("vllm_0.32_after")).window()

    prompt, output = (sum(tokens) for tokens in zip(*REQUESTS, strict=True))
    assert window[f"{m.TOKENS.name} prefill"] == prompt - HIT_TOKENS == 149
    assert window[f"{m.TOKENS.name} decode"] == output - len(REQUESTS) == 19
    assert window[f"{m.PREFIX_CACHE_TOKENS.name} hit"] == HIT_TOKENS
    assert window[f"{m.PREFIX_CACHE_TOKENS.name} miss"] == prompt - HIT_TOKENS
    for metric in (m.TIME_TO_FIRST_TOKEN, m.REQUEST_DURATION, m.REQUEST_QUEUE_DURATION):
        assert window[metric.name][0] == len(REQUESTS)
    assert window[m.INTER_TOKEN_LATENCY.name][0] == output - len(REQUESTS)


def test_a_request_with_one_output_token_has_no_time_per_output_token(told: Told):
    before, after = page("vllm_0.32_before"), page("vllm_0.32_after")
    name = "vllm:request_time_per_output_token_seconds"
    theirs = {
        part: after.of(name + part)[0].value - before.of(name + part)[0].value for part in ("_count", "_sum")
    }

    count, total = told.follow(before, after).window()[m.TIME_PER_OUTPUT_TOKEN.name]

    assert theirs["_count"] == 5
    assert count == sum(output > 1 for _, output in REQUESTS) == 3
    assert total == pytest.approx(theirs["_sum"])


def test_sums_are_the_engines_own(told: Told):
    before, after = page("vllm_0.32_before"), page("vllm_0.32_after")
    window = told.follow(before, after).window()

    name = "vllm:e2e_request_latency_seconds_sum"
    assert window[m.REQUEST_DURATION.name][1] == pytest.approx(
        after.of(name)[0].value - before.of(name)[0].value
    )


def test_the_cache_is_told_in_blocks_and_bytes_of_which_one_is_kept_back(told: Told):
    window = told.follow(page("vllm_0.32_after")).window()

    assert window[m.MLA_KV_CACHE_BLOCKS_LIMIT.name] == 8192 - 1
    assert window[f"{m.MEMORY_LIMIT.name} mla_kv_cache"] == 2**30
    assert window[m.MLA_KV_CACHE_BLOCKS.name] == window[m.REQUESTS_RUNNING.name] == 0


def test_a_pool_that_mixes_recurrent_state_and_attention_is_not_called_attention(told: Told, caplog):
    told.follow(page("vllm_0.32_hybrid"), page("vllm_0.32_hybrid"))
    window = told.window()

    assert not [name for name in window if "cache.blocks" in name or "memory" in name]
    assert window[m.REQUESTS_RUNNING.name] == 0
    [said] = caplog.messages
    assert "recurrent state and attention cache together" in said
