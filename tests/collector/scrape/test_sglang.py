"""SGLang 0.5.23's names, from its own collector classes: `pages/README.md`."""

import pytest

from moescope.collector.scrape.page import parse_page
from moescope.collector.scrape.sglang import SGLANG
from moescope.schemas import metrics as m
from tests.collector.scrape.conftest import Told, page


@pytest.fixture
def windows(told: Told) -> dict[str, dict]:
    told.follow(page("sglang_0.5.23_before"), page("sglang_0.5.23_after"))
    return {index: told.window(index) for index in told.tallies}


def test_each_data_parallel_rank_has_its_own_tokens_and_cache_hits(windows):
    assert set(windows) == {"", "0", "1"}
    tokens = [(w[f"{m.TOKENS.name} prefill"], w[f"{m.TOKENS.name} decode"]) for w in map(windows.get, "01")]
    assert tokens == [(131, 79), (23, 13)]
    assert windows["0"][f"{m.PREFIX_CACHE_TOKENS.name} hit"] == 61 + 3
    assert windows["0"][f"{m.PREFIX_CACHE_TOKENS.name} miss"] == 128
    assert windows["1"][f"{m.PREFIX_CACHE_TOKENS.name} miss"] == 23
    assert f"{m.TOKENS.name} prefill" not in windows[""]


def test_requests_belong_to_the_front_end(windows):
    front = windows[""]
    count, total = front[m.TIME_TO_FIRST_TOKEN.name]
    assert (count, total) == (4, pytest.approx(0.05 + 0.31 + 0.9 + 0.15))
    assert front[m.REQUEST_DURATION.name] == (4, pytest.approx(0.49 + 0.71 + 0.9 + 2.13))
    assert front[m.TIME_PER_OUTPUT_TOKEN.name] == (3, pytest.approx(0.02 + 0.1 + 0.03))
    assert front[m.INTER_TOKEN_LATENCY.name][0] == 22 + 4 + 66
    assert m.TIME_TO_FIRST_TOKEN.name not in windows["0"]


def test_queue_and_load_belong_to_the_schedulers(windows):
    assert windows["0"][m.REQUEST_QUEUE_DURATION.name] == (3, pytest.approx(0.0005 + 0.013 + 0.23))
    assert windows["1"][m.REQUEST_QUEUE_DURATION.name] == (1, pytest.approx(0.001))
    assert [windows[i][m.REQUESTS_RUNNING.name] for i in "01"] == [5, 3]
    assert [windows[i][m.REQUESTS_WAITING.name] for i in "01"] == [2 + 1, 0]


def test_recurrent_state_and_attention_cache_stay_apart(windows):
    first = windows["0"]
    assert (first[m.KDA_STATE_SLOTS.name], first[m.KDA_STATE_SLOTS_LIMIT.name]) == (8, 8 + 50 + 6)
    assert (first[m.MLA_KV_CACHE_BLOCKS.name], first[m.MLA_KV_CACHE_BLOCKS_LIMIT.name]) == (256, 1024)
    assert first[f"{m.MEMORY_LIMIT.name} mla_kv_cache"] == 2.25 * 2**30
    assert first[f"{m.MEMORY_USAGE.name} mla_kv_cache"] == 0.25 * 2.25 * 2**30


def test_gigabytes_are_gibibytes(windows):
    assert windows["0"][f"{m.MEMORY_USAGE.name} weights"] == 1.5 * 2**30
    assert windows["0"][f"{m.MEMORY_USAGE.name} runtime"] == (0.125 + 0.0625) * 2**30


def test_a_model_without_recurrent_state_has_no_slots(told: Told):
    window = told.follow(
        parse_page("sglang:mamba_used_tokens 0\nsglang:mamba_available_tokens 0\nsglang:num_running_reqs 0\n")
    ).window("")

    assert list(window) == [m.REQUESTS_RUNNING.name]


def test_of_ranks_that_say_the_same_the_first_is_read(told: Told):
    lines = [
        f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}",moe_ep_rank="{tp}"}} 13\n'
        for dp in range(2)
        for tp in range(dp * 2, dp * 2 + 2)
    ]
    read = parse_page("".join(lines))

    told.follow(read)

    assert [told.window(index)[m.REQUESTS_RUNNING.name] for index in "01"] == [13, 13]
    assert [SGLANG.rank_of(part) for part in SGLANG.engines(read).values()] == [0, 2]


def test_requests_by_priority_are_not_counted_besides_their_total(told: Told):
    lines = [f'sglang:num_running_reqs{{priority="{p}"}} {n}\n' for p, n in (("", 23), ("1", 13), ("2", 10))]

    assert told.follow(parse_page("".join(lines))).window("")[m.REQUESTS_RUNNING.name] == 23
