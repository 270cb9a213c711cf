"""An engine's page that changes, goes away, restarts and comes back, all the way into the views."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.page_server import PageServer, page_server
from tests.server_process import ServerProcess, free_ports

__all__ = ["page_server"]

PAGES = Path(__file__).parent.parent / "collector" / "scrape" / "pages"
BEFORE = (PAGES / "vllm_0.32_before.prom").read_text()
AFTER = (PAGES / "vllm_0.32_after.prom").read_text()


def moescope(*arguments: str, **environ: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "moescope", *arguments],
        env={**os.environ, "NO_COLOR": "1", **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.fixture
def scraper(server: ServerProcess, page_server: PageServer) -> Iterator[subprocess.Popen]:
    page_server.body = BEFORE
    process = moescope(
        *(
            "scrape",
            page_server.url,
            "--interval",
            "0.5s",
            "--endpoint",
            server.endpoint,
            "--service",
            "fleet",
        ),
    )
    yield process
    process.kill()
    process.communicate()


def test_what_the_page_says_is_what_the_views_hold(
    server: ServerProcess, page_server: PageServer, scraper: subprocess.Popen
):
    def tokens() -> dict[str, int]:
        rows = server.sql("SELECT phase, sum(tokens) FROM token_count WHERE service = 'fleet' GROUP BY ALL")
        return {phase: int(count) for phase, count in rows}

    def health() -> list[list[str]]:
        return server.sql(
            "SELECT component, state, windows > 0 FROM telemetry_health WHERE service = 'fleet'"
        )

    wait_until(lambda: health() == [["scraper", "ok", "1"]])
    page_server.body = AFTER
    wait_until(lambda: tokens() == {"prefill": 149, "decode": 19})
    page_server.status = 503
    asked = len(page_server.requests)
    wait_until(lambda: len(page_server.requests) > asked + 1)
    # The engine restarts and serves the first three requests again: totals are lower than before.
    page_server.body, page_server.status = BEFORE, 200
    wait_until(lambda: tokens().get("prefill", 0) > 149)
    scraper.send_signal(signal.SIGTERM)
    _, errors = scraper.communicate(timeout=60)

    assert scraper.returncode == 0, errors
    assert "HTTP 503" in errors
    assert "answers again" in errors
    # 13 + 79 + 401 prompt tokens; 23 + 5 + 1 generated ones, of which each request's first is none of decode.
    assert tokens() == {"prefill": 149 + 493, "decode": 19 + 26}
    latency = server.sql(
        "SELECT metric, sum(observations) FROM request_latency WHERE service = 'fleet' GROUP BY ALL"
    )
    assert dict(latency) == {"e2e": "8", "itl": "45", "queue": "8", "tpot": "5", "ttft": "8"}
    cache = server.sql("SELECT sum(hit_tokens), sum(miss_tokens) FROM prefix_cache WHERE service = 'fleet'")
    assert cache == [["384", str(149 + 493)]]
    blocks = server.sql(
        "SELECT max(mla_blocks_limit), max(kda_slots_limit) FROM cache_state WHERE service = 'fleet'"
    )
    assert blocks[0][0] == "8191"


def test_a_look_at_pages_prints_what_would_be_reported_and_sends_nothing(page_server: PageServer):
    page_server.body = AFTER
    [nobody] = free_ports(1)
    process = moescope("scrape", page_server.url, f"127.0.0.1:{nobody}", "--once", "--json")
    output, errors = process.communicate(timeout=60)

    answer = json.loads(output)
    assert process.returncode == 1, errors
    [page] = answer["pages"]
    assert (page["engine"], page["index"], page["service"], page["ep_rank"]) == ("vllm", "0", "tiny", 0)
    values = {(v["metric"], *v["attributes"].values()): v for v in page["values"]}
    assert values["moe.tokens", "prefill", "none"]["value"] == 642
    assert values["moe.mla_kv_cache.blocks.limit",]["value"] == 8191
    tpot = next(v for key, v in values.items() if key[0] == "gen_ai.server.time_per_output_token")
    assert tpot["count"] == sum(tpot["bucket_counts"]) == 5
    [error] = answer["errors"]
    assert (error["reason"], error["url"]) == ("unreachable", f"http://127.0.0.1:{nobody}/metrics")


def test_a_look_without_json_is_for_people(page_server: PageServer):
    page_server.body = AFTER
    output, errors = moescope("scrape", page_server.url, "--once").communicate(timeout=60)

    assert errors == ""
    assert "vllm, service tiny" in output
    assert "8 observations" in output


def test_wrong_use_ends_with_2_and_says_what_to_do():
    process = moescope("scrape", "ftp://host")
    output, errors = process.communicate(timeout=60)

    assert (process.returncode, output) == (2, "")
    assert "write http://host:8000/metrics" in errors
    assert "Traceback" not in errors


def test_a_page_that_stops_to_answer_falls_silent(tmp_path: Path, page_server: PageServer, monkeypatch):
    monkeypatch.setenv("MOESCOPE_SILENT_AFTER_SECONDS", "2")
    server = ServerProcess(tmp_path / "data").start()
    page_server.body = AFTER
    process = moescope("scrape", page_server.url, "--interval", "0.5s", "--endpoint", server.endpoint)

    def states() -> list[list[str]]:
        return server.sql("SELECT service, component, state FROM telemetry_health")

    try:
        wait_until(lambda: states() == [["tiny", "scraper", "ok"]])
        page_server.status = 401
        wait_until(lambda: states() == [["tiny", "scraper", "silent"]])
        page_server.status = 200
        wait_until(lambda: states() == [["tiny", "scraper", "ok"]])
    finally:
        process.kill()
        process.communicate()
        server.stop()
