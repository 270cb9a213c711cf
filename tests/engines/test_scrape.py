"""The page of a real vLLM that knows nothing of moescope tells what it was asked for."""

import json
import sys
from pathlib import Path

import pytest

from moescope.collector.scrape.follow import Follower
from moescope.collector.scrape.page import parse_page
from moescope.collector.scrape.tables import choose_table
from moescope.collector.tally import Tally
from moescope.schemas import metrics as m
from moescope.schemas.records import Distribution

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).parent / "programs" / "pages.py"
BEFORE = [[5, 3]]  # what was served before the first reading is none of our business
BETWEEN = [[13, 23], [79, 5], [101, 1], [401, 13], [401, 2]]


def test_a_real_page_tells_tokens_requests_and_cache(run, tiny_qwen3_moe, tmp_path):
    run.environ |= {"MOESCOPE_ENABLED": "0", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    process = run.start(sys.executable, PROGRAM, tiny_qwen3_moe, json.dumps([BEFORE, BETWEEN]), tmp_path)
    try:
        assert process.wait(280) == 0, run.log.read_text()[-5000:]
    finally:
        process.kill()

    pages = [parse_page((tmp_path / f"{number}.prom").read_text()) for number in range(2)]
    table, tally = choose_table(pages[0]), Tally()
    follower = Follower(table, tally)
    for page in pages:
        follower.follow(table.engines(page)["0"])

    window = {}
    for record in tally.close_window(snapshot=True):
        words = [v for k, v in record.attributes.items() if not k.startswith("gen_ai.") and v != "none"]
        window[" ".join([record.metric.name, *words])] = (
            int(record.bucket_counts.sum()) if isinstance(record, Distribution) else record.value
        )
    prompts, outputs = (sum(numbers) for numbers in zip(*BETWEEN, strict=True))
    hits = window[f"{m.PREFIX_CACHE_TOKENS.name} hit"]
    assert table.engine == "vllm"
    assert hits >= 384
    assert window[f"{m.PREFIX_CACHE_TOKENS.name} miss"] == prompts - hits
    assert window[f"{m.TOKENS.name} prefill"] == prompts - hits
    assert window[f"{m.TOKENS.name} decode"] == outputs - len(BETWEEN)
    assert window[m.TIME_TO_FIRST_TOKEN.name] == window[m.REQUEST_DURATION.name] == len(BETWEEN)
    assert window[m.TIME_PER_OUTPUT_TOKEN.name] == len(BETWEEN) - 1
    assert window[m.MLA_KV_CACHE_BLOCKS_LIMIT.name] > 0
