"""Real vLLM: what is stored equals what the routers returned, for every layer, phase and expert."""

import json
import signal
import socket
import sys
import time
import urllib.error
import urllib.request

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

TOP_K = 4
MOE_LAYERS = [0, 2, 3]
# [prompt tokens, generated tokens, seed of the prompt]
ONE_BATCH = [
    [[13, 13, 1], [79, 5, 2], [201, 1, 3], [23, 23, 4], [131, 7, 5], [5, 11, 6], [1, 3, 7], [61, 2, 8]]
]


def check_equal_and_conserved(run, store, service, tokens):
    """Every cell equal, and the sums as large as the engine's own account of its tokens says."""
    sums = store.sums(service)
    assert sums == run.expected_sums
    local = (
        tokens["prompt_tokens"] - tokens["cached_tokens"] + tokens["generated_tokens"] - tokens["finished"]
    )
    for layer in MOE_LAYERS:
        assert sum(sum(sums[layer, phase]) for phase in ("prefill", "decode")) == TOP_K * local
    stored = store.tokens(service)
    assert {phase: stored[phase] for phase in ("prefill", "decode")} == run.recount["tokens"]
    assert stored["prefill"] + stored["decode"] == local
    assert store.health(service) == [(TOP_K * local * len(MOE_LAYERS), 0, "ok")]


def test_eager(run, store, service, tiny_qwen3_moe):
    tokens = run.generate(tiny_qwen3_moe, ONE_BATCH, enforce_eager=True)

    check_equal_and_conserved(run, store, service, tokens)
    assert sorted({layer for layer, _ in run.expected_sums}) == MOE_LAYERS
    assert tokens["prompt_tokens"] == 514


@pytest.fixture
def in_process(run):
    """Options with which everything runs in the program's own process: two less to start."""
    run.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    return {"distributed_executor_backend": "uni"}


def test_chunked_prefill_in_mixed_batches(run, store, service, tiny_qwen3_moe, in_process):
    tokens = run.generate(
        tiny_qwen3_moe, ONE_BATCH, enforce_eager=True, max_num_batched_tokens=37, **in_process
    )

    check_equal_and_conserved(run, store, service, tokens)
    assert run.recount["steps"]["mixed"] >= 5


def test_tokens_of_a_prefix_cache_hit_are_not_routed(run, store, service, tiny_qwen3_moe, in_process):
    same_prompt_three_times = [[[400, 2, 9]], [[400, 2, 9]], [[400, 2, 9]]]

    tokens = run.generate(tiny_qwen3_moe, same_prompt_three_times, enforce_eager=True, **in_process)

    check_equal_and_conserved(run, store, service, tokens)
    assert tokens["cached_tokens"] == 2 * 384
    assert store.tokens(service)["prefill"] == 400 + 2 * 16


def test_compiled(run, store, service, tiny_qwen3_moe, in_process):
    tokens = run.generate(tiny_qwen3_moe, ONE_BATCH, **in_process)

    check_equal_and_conserved(run, store, service, tokens)
    # Tracing ran the model; those rows are warm-up and nothing else.
    assert run.recount["other_rows"] > 0
    assert store.tokens(service)["warmup"] == run.recount["other_rows"]


def test_two_tensor_parallel_ranks_count_a_token_once(run, store, service, tiny_qwen3_moe):
    run.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"

    tokens = run.generate(tiny_qwen3_moe, ONE_BATCH, enforce_eager=True, tensor_parallel_size=2)

    check_equal_and_conserved(run, store, service, tokens)


def test_switched_off_nothing_is_touched(run, store, service, tiny_qwen3_moe, in_process):
    run.environ["MOESCOPE_ENABLED"] = "0"

    run.generate(tiny_qwen3_moe, ONE_BATCH, enforce_eager=True, **in_process)

    assert store.tokens(service) == {}
    assert run.recount["is_watched"] is False
    assert run.said_by_moescope() == []


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def complete(port, prompt, max_tokens):
    body = {"model": "tiny", "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["usage"]


def wait_until_healthy(process, port, log):
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-5000:]
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
        else:
            return
    raise AssertionError(log.read_text()[-5000:])


def test_served_by_three_processes_and_ended_by_sigterm(run, store, service, tiny_qwen3_moe):
    port = free_port()
    process = run.start(
        *(sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", tiny_qwen3_moe),
        *("--served-model-name", "tiny", "--port", port, "--host", "127.0.0.1", "--enforce-eager"),
        *("--max-model-len", 512, "--max-num-seqs", 8),
    )
    try:
        wait_until_healthy(process, port, run.log)
        usages = [
            complete(port, list(range(prompt_tokens)), generated)
            for prompt_tokens, generated in ((13, 23), (79, 5), (401, 1))
        ]
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    finally:
        process.kill()

    tokens = {
        "prompt_tokens": sum(usage["prompt_tokens"] for usage in usages),
        "generated_tokens": sum(usage["completion_tokens"] for usage in usages),
        # The second and third prompt begin as the one before them: whole blocks of it are cached.
        "cached_tokens": 493 - run.recount["tokens"]["prefill"],
        "finished": len(usages),
    }
    check_equal_and_conserved(run, store, service, tokens)
    assert tokens["prompt_tokens"] == 493
