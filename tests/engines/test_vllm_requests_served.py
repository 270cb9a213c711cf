"""`vllm serve` in three processes: what is stored of its requests equals what its own /metrics says."""

import json
import re
import signal
import sys
import time
import urllib.error
import urllib.request

import pytest

from moescope.schemas import metrics
from moescope.schemas.attributes import CONTRACT, RESULT
from tests.server_process import free_ports

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

SERVICE = "served-requests"
# [first token of the prompt, prompt tokens, generated tokens]; prompts count up from their first token.
REQUESTS = [[1, 13, 23], [1, 301, 5], [1, 301, 5], [1, 401, 1], [200, 201, 13], [9, 23, 1]]
# A request of so many tokens makes the metrics fail in the plug-in below.
UNLUCKY = 7

SABOTAGE = f"""
from moescope.collector.requests import RequestMetrics


def load():
    finished = RequestMetrics.finished

    def fail_on_some(self, request):
        if request.output_tokens == {UNLUCKY}:
            raise RuntimeError("on purpose")
        finished(self, request)

    RequestMetrics.finished = fail_on_some
"""


class Served:
    """One run of `vllm serve`, asked, sabotaged and ended."""

    def __init__(self, run, model):
        self.run = run
        (self.port,) = free_ports(1)
        self.process = run.start(
            *(
                sys.executable,
                "-m",
                "vllm.entrypoints.cli.main",
                "serve",
                model,
                "--served-model-name",
                "tiny",
            ),
            *("--port", self.port, "--host", "127.0.0.1", "--enforce-eager"),
            *("--max-model-len", 512, "--max-num-seqs", 8),
        )

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return answer.read().decode()

    def wait_until_healthy(self):
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.run.log.read_text()[-5000:]
            try:
                self.get("/health")
            except (urllib.error.URLError, OSError):
                time.sleep(0.3)
            else:
                return
        raise AssertionError(self.run.log.read_text()[-5000:])

    def complete(self, first, prompt_tokens, generated):
        prompt = list(range(first, first + prompt_tokens))
        body = {"model": "tiny", "prompt": prompt, "max_tokens": generated, "ignore_eos": True}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["usage"]

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


@pytest.fixture(scope="module")
def served(make_run, tmp_path_factory, tiny_qwen3_moe):
    """What a client and a scraper saw, and what the process said."""
    folder = tmp_path_factory.mktemp("served")
    run = make_run(folder, SERVICE)
    (folder / "sabotage_plugin.py").write_text(SABOTAGE)
    distribution = folder / "sabotage-0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: sabotage\nVersion: 0\n")
    (distribution / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nsabotage = sabotage_plugin:load\n"
    )
    run.environ["PYTHONPATH"] = f"{folder}:{run.environ['PYTHONPATH']}"
    served = Served(run, tiny_qwen3_moe)
    try:
        served.wait_until_healthy()
        served.usages = [served.complete(*request) for request in REQUESTS]
        served.page = served.get("/metrics")
        served.usages_after_failure = [served.complete(401, 13, UNLUCKY), served.complete(411, 13, 3)]
        served.end()
    finally:
        served.process.kill()
    return served


def own(served, name, **labels):
    """A number of vLLM's page."""
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    lines = [
        line
        for line in served.page.splitlines()
        if re.match(rf"{name}[{{ ]", line) and all(w in line for w in wanted)
    ]
    assert lines, name
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


@pytest.mark.parametrize(
    ("metric", "theirs"),
    [
        (metrics.TIME_TO_FIRST_TOKEN, "vllm:time_to_first_token_seconds"),
        (metrics.INTER_TOKEN_LATENCY, "vllm:inter_token_latency_seconds"),
        (metrics.REQUEST_QUEUE_DURATION, "vllm:request_queue_time_seconds"),
        (metrics.REQUEST_DURATION, "vllm:e2e_request_latency_seconds"),
    ],
)
def test_latencies_are_those_of_vllms_own_page(served, store, metric, theirs):
    count, total = store.distributions(SERVICE)[metric.name]

    # First tokens and gaps are said before a request ends: the failing one's first token came in time.
    extra = 1 if metric is metrics.TIME_TO_FIRST_TOKEN else 0
    extra_gaps = UNLUCKY - 1 if metric is metrics.INTER_TOKEN_LATENCY else 0
    assert count == own(served, f"{theirs}_count") + extra + extra_gaps
    if count == own(served, f"{theirs}_count"):
        assert total == pytest.approx(own(served, f"{theirs}_sum"))


def test_the_time_per_output_token_differs_by_the_requests_of_one_token(served, store):
    count, total = store.distributions(SERVICE)[metrics.TIME_PER_OUTPUT_TOKEN.name]

    assert own(served, "vllm:request_time_per_output_token_seconds_count") == len(REQUESTS)
    assert count == len(REQUESTS) - 2
    assert total == pytest.approx(own(served, "vllm:request_time_per_output_token_seconds_sum"))


def test_tokens_are_those_of_the_page_and_of_the_answers(served, store):
    tokens = store.counters(SERVICE, metrics.REQUEST_OUTPUT_TOKENS.name, CONTRACT)

    assert sum(tokens.values()) == own(served, "vllm:generation_tokens_total")
    assert sum(tokens.values()) == sum(usage["completion_tokens"] for usage in served.usages)
    finished = store.counters(SERVICE, metrics.REQUESTS_FINISHED.name, CONTRACT)
    assert sum(finished.values()) == own(served, "vllm:request_success_total") == len(REQUESTS)


def test_the_prefix_cache_is_reconciled_with_the_page(served, store):
    found = store.counters(SERVICE, metrics.PREFIX_CACHE_TOKENS.name, RESULT)

    # Blocks are of 128 tokens: of 301 alike two are found, as far as can be; of 401 the same two.
    assert found == {"hit": 256, "partial_hit": 256, "miss": 1240 - 512}
    assert found["hit"] + found["partial_hit"] == own(served, "vllm:prefix_cache_hits_total")
    assert sum(found.values()) == own(served, "vllm:prefix_cache_queries_total")
    by_source = {
        source: own(served, "vllm:prompt_tokens_by_source_total", source=source)
        for source in ("local_compute", "local_cache_hit")
    }
    assert by_source == {"local_compute": found["miss"], "local_cache_hit": 512}


def test_one_request_at_a_time_runs_and_none_waits(store, served):
    # None at all once the logger has given up: what nobody knows any more is not said.
    assert set(store.states(SERVICE, metrics.REQUESTS_RUNNING.name).get("", [])) <= {0, 1}
    assert set(store.states(SERVICE, metrics.REQUESTS_WAITING.name).get("", [])) <= {0}


def test_one_front_end_and_one_engine_core_report(store, served):
    (frontend,) = store.resources(SERVICE, "frontend")
    (scheduler,) = store.resources(SERVICE, "scheduler")

    assert frontend["moe.model.name"] == scheduler["moe.model.name"] == "tiny"
    assert frontend["service.instance.id"] != scheduler["service.instance.id"]


def test_a_model_without_linear_attention_has_blocks_and_no_slots(store, served):
    assert store.states(SERVICE, metrics.MLA_KV_CACHE_BLOCKS.name)[""][-1] == 0
    assert store.states(SERVICE, metrics.MLA_KV_CACHE_BLOCKS_LIMIT.name)[""][0] > 0
    assert store.states(SERVICE, metrics.KDA_STATE_SLOTS.name) == {}


def test_experts_are_counted_as_exactly_as_ever(served, store):
    assert store.sums(SERVICE) == served.run.expected_sums
    assert store.tokens(SERVICE)["prefill"] == served.run.recount["tokens"]["prefill"] > 0


def test_a_logger_that_fails_says_so_once_and_requests_are_answered(served):
    assert [usage["completion_tokens"] for usage in served.usages_after_failure] == [UNLUCKY, 3]
    messages = [line for line in served.run.said_by_moescope() if "requests are not measured" in line]
    assert len(messages) == 1
    assert served.process.returncode == 0
