"""Dynamo's documented names: `pages/README.md`."""

import pytest

from moescope.collector.scrape.page import parse_page
from moescope.collector.scrape.tables import choose_table
from moescope.schemas import metrics as m
from tests.collector.scrape.conftest import PAGES, Told, page


def test_the_front_end_tells_latency_load_and_cached_tokens(told: Told):
    window = told.follow(page("dynamo_frontend_1.7_before"), page("dynamo_frontend_1.7_after")).window("")

    assert window[m.TIME_TO_FIRST_TOKEN.name] == (3, pytest.approx(0.005 + 0.04 + 0.9))
    assert window[m.REQUEST_DURATION.name] == (3, pytest.approx(0.7 + 1.9 + 9.0))
    assert window[m.INTER_TOKEN_LATENCY.name][0] == 23
    assert window[f"{m.PREFIX_CACHE_TOKENS.name} hit"] == 128
    assert window[f"{m.PREFIX_CACHE_TOKENS.name} miss"] == 131 + 401 + 23 - 128
    assert (window[m.REQUESTS_RUNNING.name], window[m.REQUESTS_WAITING.name]) == (5 - 2, 2)


def test_a_worker_tells_its_blocks_by_rank(told: Told):
    told.follow(page("dynamo_worker_1.7"))

    assert [told.window(i).get(m.MLA_KV_CACHE_BLOCKS.name) for i in "01"] == [1024, 2048]
    assert told.window("")[m.REQUESTS_RUNNING.name] == 3


def test_a_worker_that_runs_vllm_is_read_by_vllms_names():
    text = (PAGES / "dynamo_worker_1.7.prom").read_text() + (PAGES / "vllm_0.32_after.prom").read_text()

    assert choose_table(parse_page(text)).engine == "vllm"
