"""`routing_signals` and GET /v1/signals: from recorders through either store to a gateway."""

import json
import os
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from jsonschema import Draft202012Validator

from moescope.analysis.signals import SignalReader
from moescope.collector.requests import FinishedRequest, RequestMetrics
from moescope.schemas import metrics
from moescope.schemas.attributes import EXCLUDED, PHASE, RESULT, CacheResult, Component, Excluded, Phase
from moescope.schemas.report_schema import read_report_schema
from moescope.schemas.settings import Settings
from moescope.schemas.signals import Confidence
from tests.server_process import ServerProcess

SETTINGS = Settings(rank_hour_price=7.2)
MINUTE = 60


@pytest.fixture
def reported(fleet):
    """Three minutes of two ranks, a scheduler and a front end: known numbers in every window."""
    rank, other = fleet.rank(0), fleet.rank(1)
    scheduler, front = (
        fleet.process(Component.SCHEDULER),
        fleet.process(Component.FRONTEND, host="gateway-13"),
    )
    requests = RequestMetrics(front, model="known-model", provider="custom", settings=fleet.settings)
    for minute in range(3):
        for one in (rank, other):
            one.add(
                metrics.TOKENS, 600 * (minute + 1), {PHASE: Phase.DECODE.value, EXCLUDED: Excluded.NONE.value}
            )
        scheduler.set_state(metrics.KDA_STATE_SLOTS, 13 + minute)
        scheduler.set_state(metrics.KDA_STATE_SLOTS_LIMIT, 79)
        scheduler.set_state(metrics.MLA_KV_CACHE_BLOCKS, 230 + minute)
        scheduler.set_state(metrics.MLA_KV_CACHE_BLOCKS_LIMIT, 7_919)
        scheduler.set_state(metrics.REQUESTS_RUNNING, 7)
        scheduler.set_state(metrics.REQUESTS_WAITING, minute)
        for result, tokens in zip(CacheResult, (100, 30, 70), strict=True):
            scheduler.add(metrics.PREFIX_CACHE_TOKENS, tokens, {RESULT: result.value})
        for _ in range(13):
            requests.first_token(0.3)
            requests.finished(FinishedRequest(0.3 + 22 * 0.02, 0.3, 23, 0.1))
        fleet.close_window(MINUTE)
    return fleet


def test_row_of_a_minute_holds_what_its_processes_said(reported):
    (row,) = reported.rows(
        "routing_signals",
        "role, frontend_host, prompt_tokens, prefix_hit_ratio, prefix_partial_hit_ratio, "
        "decode_tokens_per_second, kda_slots_free, kda_slots_limit, mla_blocks_free, mla_blocks_limit, "
        "requests_running, requests_waiting, first_tokens, requests_finished, good_tokens, rank_seconds",
        f"time = '{reported.minute(2)}'",
    )
    assert row == (
        *("mixed", "gateway-13", 200, 0.65, 0.15, 60),
        *(79 - 15, 79, 7_919 - 232, 7_919, 7, 2, 13, 13, 13 * 23, 2 * MINUTE),
    )


def test_what_nobody_reported_is_null_and_not_zero(fleet):
    fleet.process(Component.SCHEDULER).set_state(metrics.MLA_KV_CACHE_BLOCKS, 79)
    fleet.close_window()

    assert fleet.rows(
        "routing_signals",
        "role, frontend_host, prefix_hit_ratio, decode_tokens_per_second, kda_slots_free, kda_slots_limit, "
        "mla_blocks_free, mla_blocks_limit, requests_running, ttft_p50_seconds, requests_finished",
    ) == [("mixed", "", *[None] * 8, 0)]


def test_rank_that_was_started_again_is_one_process(fleet):
    """Else the minute after a restart would look as if somebody had not reported yet."""
    for ep_rank in (0, 1, 1):
        fleet.rank(ep_rank)
    fleet.process(Component.FRONTEND)
    fleet.close_window()

    assert fleet.rows("routing_signals", "processes") == [(3,)]


def test_both_caches_lent_from_one_set_of_blocks_leave_what_neither_holds(fleet):
    scheduler = fleet.process(Component.SCHEDULER)
    for metric, limit, used in (
        (metrics.KDA_STATE_SLOTS, metrics.KDA_STATE_SLOTS_LIMIT, 13),
        (metrics.MLA_KV_CACHE_BLOCKS, metrics.MLA_KV_CACHE_BLOCKS_LIMIT, 23),
    ):
        scheduler.set_state(metric, used)
        scheduler.set_state(limit, 79)
    fleet.close_window()

    assert fleet.rows("routing_signals", "kda_slots_free, mla_blocks_free") == [(43, 43)]


def test_reader_tells_the_same_with_ages_and_confidence(reported):
    now_ms = reported.clock.now_ns // 10**6 + 7_000
    reader = SignalReader(reported.dsn, SETTINGS, clock_ms=lambda: now_ms)
    told = reader.read()
    reader.close()

    (endpoint,) = [one for one in told.endpoints if one.service == reported.service]
    load = endpoint.load
    assert (load["kda_slots_free"].value, load["mla_blocks_free"].value) == (64, 7_687)
    assert load["kda_slots_free"].age_seconds == 7
    assert load["decode_tokens_per_second"].value == 60
    assert load["decode_best_tokens_per_second"].value == pytest.approx(58)
    assert load["requests_waiting"].value == 2
    ttft = load["ttft_p50_seconds"]
    assert (ttft.observations, ttft.confidence) == (39, Confidence.HIGH)
    assert endpoint.state["prefix_hit_ratio"].value == pytest.approx(0.65)
    cost = 7.2 / 3_600 * 2 * 3 * MINUTE / (3 * 13 * 23) * 1_000
    assert endpoint.economics["cost_per_thousand_good_tokens"].value == pytest.approx(cost)
    assert endpoint.to_dict()["eligibility"]["status"] == "not configured"


def _get(server: ServerProcess, path: str) -> dict:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}{path}", timeout=60) as answer:
        assert answer.status == 200
        return json.load(answer)


def test_gateway_asks_a_running_server(tmp_path, monkeypatch):
    limits = tmp_path / "endpoints.yaml"
    limits.write_text("endpoints:\n  - service: mixtral\n    max_context_tokens: 32768\n")
    monkeypatch.setenv("MOESCOPE_ENDPOINTS_FILE", str(limits))
    monkeypatch.setenv("MOESCOPE_RANK_HOUR_PRICE", "3")
    server = ServerProcess(tmp_path / "data").start()
    try:
        (silent,) = _get(server, "/v1/signals")["endpoints"]
        assert silent["load"]["decode_tokens_per_second"]["value"] is None
        done = subprocess.run(
            [
                *(sys.executable, "-m", "moescope", "simulate", "--model", "mixtral", "--ranks", "4"),
                *("--backfill", "3m", "--duration", "0s", "--endpoint", server.endpoint),
            ],
            env={**os.environ, "MOESCOPE_FLUSH_TIMEOUT_SECONDS": "60"},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda _: _get(server, "/v1/signals?service=mixtral"), range(200)))
        moments = {one["computed_at"] for one in answers}
        assert len(moments) < 50, "those who ask at once get the same reading"
        printed = answers[-1]
        assert list(Draft202012Validator(read_report_schema("signals")).iter_errors(printed)) == []
        (endpoint,) = printed["endpoints"]
        assert endpoint["eligibility"]["max_context_tokens"] == 32_768
        assert endpoint["host"] == "simulated-node-0"
        assert endpoint["load"]["decode_tokens_per_second"]["value"] > 0
        assert endpoint["load"]["mla_blocks_free"]["value"] > 0
        assert endpoint["load"]["kda_slots_free"]["value"] is None, "a model without KDA state"
        assert endpoint["load"]["ttft_p90_seconds"]["observations"] > 100
        assert endpoint["economics"]["cost_per_thousand_good_tokens"]["value"] > 0
        ages = [one["age_seconds"] for one in endpoint["load"].values() if one["value"] is not None]
        assert max(ages) < 240
    finally:
        server.stop()
