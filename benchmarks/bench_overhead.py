"""What the vLLM hook costs: throughput without it over throughput with it, decode and prefill.

Real vLLM on this machine's CPU, eager, on a random MoE of 202 million parameters (8 layers of 64 experts,
top-8), all in one process. Engine steps with the hook on and off alternate in pairs, in random order within a
pair, so that whatever else the machine does hits both; the ratio is the median over the pairs. On is all that
there is: routers bound, tokens counted by expert and by the eight ranks of a group that this one engine makes
believe to be of, steps and experts timed in every pass, not in one of fifty, memory, requests, caches, and
the reporters' threads exporting over OTLP to an endpoint that takes everything. Off is what a user without
moescope has: no callback, vLLM's own methods and no statistics, the reporters held still.

On one thread, unless OMP_NUM_THREADS says otherwise: two that wait for each other at every operator measure
whoever else uses the machine. `cpu_ratio` compares the CPU time of the process, all its threads, instead of
the clock's: where the two ratios differ, the machine was busy, and it is the one to believe.

`--quick` runs a few pairs, as smoke; its ratio means nothing.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from machine import print_result

Seconds: TypeAlias = tuple[float, float]
"""By the clock, and of CPU time."""

IS_QUICK = "--quick" in sys.argv
PAIRS = 20 if IS_QUICK else 800
WARM_UP_STEPS = 5
MAX_SECONDS = 80.0  # of one workload: a slow machine gets fewer pairs
TOP_K = 8
CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "vocab_size": 512,
    "hidden_size": 512,
    "intermediate_size": 512,
    "moe_intermediate_size": 256,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "num_experts": 64,
    "num_experts_per_tok": TOP_K,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "mlp_only_layers": [],
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
DECODE_REQUESTS = 32
PROMPT_TOKENS = 500
RANKS = 8

_ENDPOINT = """
import http.server
class Take(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Take)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextmanager
def endpoint() -> Iterator[str]:
    """An OTLP endpoint in a process of its own that takes everything."""
    process = subprocess.Popen([sys.executable, "-c", _ENDPOINT], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.kill()
        process.wait()


class Switch:
    """Takes every hook off an engine, and puts it back."""

    def __init__(self, llm: Any, worker: Any) -> None:
        from moescope.collector.hooks import vllm_layers

        self._layers_module = vllm_layers
        self._runner = worker.model_runner
        # No part of moescope has such a switch: held, a reporter's thread stands still.
        self._reporter_locks = [
            thread._target.__self__._lock  # noqa: SLF001 - same
            for thread in threading.enumerate()
            if thread.name == "moescope-reporter"
        ]
        layers = vllm_layers.find_moe_layers(self._runner.get_model())
        self._callbacks = [(layer, vllm_layers.get_callback(layer)) for layer in layers]
        names = ("_prepare_inputs", "_dummy_run", "execute_model")
        self._wrapped = {name: vars(self._runner)[name] for name in names}
        # Where offline requests are measured, statistics are on; they are off in a vLLM of its own.
        engine = llm.llm_engine
        scheduler = engine.engine_core.engine_core.scheduler
        self._statistics = [
            (target, name, getattr(target, name), off)
            for target, name, off in (
                (engine, "log_stats", False),
                (engine, "logger_manager", None),
                (scheduler, "log_stats", False),
            )
        ]
        assert all(callback is not None for _, callback in self._callbacks), "the hook is not on"

    def off(self) -> None:
        for lock in self._reporter_locks:
            lock.acquire()
        for target, name, _, off in self._statistics:
            setattr(target, name, off)
        for layer, _ in self._callbacks:
            self._layers_module.set_callback(layer, None)
        for name in self._wrapped:
            delattr(self._runner, name)

    def on(self) -> None:
        for name, method in self._wrapped.items():
            setattr(self._runner, name, method)
        for layer, callback in self._callbacks:
            self._layers_module.set_callback(layer, callback)
        for target, name, on, _ in self._statistics:
            setattr(target, name, on)
        for lock in self._reporter_locks:
            lock.release()


def make_believe_in_a_group(ranks: int) -> None:
    """Have the worker count by peer rank; there is nobody to exchange anything with."""
    from moescope.collector.hooks import vllm_ranks

    find_ranks = vllm_ranks.find_ranks

    def find_and_pretend(*args: Any, **kwargs: Any) -> Any:
        return dataclasses.replace(find_ranks(*args, **kwargs), ep_size=ranks)

    vllm_ranks.find_ranks = find_and_pretend


def make_engine(folder: str) -> Any:
    from vllm import LLM

    Path(folder, "config.json").write_text(json.dumps(CONFIG))
    return LLM(
        folder,
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        enable_prefix_caching=False,
        distributed_executor_backend="uni",
        max_model_len=512,
        max_num_seqs=32,
        dtype="bfloat16",
    )


class Steps(ABC):
    """Engine steps of one kind, one at a time."""

    def __init__(self, llm: Any) -> None:
        self.engine = llm.llm_engine
        self._names: list[str] = []
        self._numbers = random.Random(23)

    def add_request(self, prompt_tokens: int, generated: int) -> None:
        from vllm import SamplingParams

        prompt = {"prompt_token_ids": [self._numbers.randrange(512) for _ in range(prompt_tokens)]}
        parameters = SamplingParams(max_tokens=generated, ignore_eos=True, detokenize=False, temperature=0)
        self._names.append(f"{type(self).__name__}-{len(self._names)}")
        self.engine.add_request(self._names[-1], prompt, parameters)

    @property
    @abstractmethod
    def tokens_per_step(self) -> int:
        """Token rows of one step."""

    @abstractmethod
    def prepare(self) -> None:
        """Let the next step be of this kind. The hooks are on."""

    def run(self) -> Seconds:
        """Run one step."""
        clock, cpu = time.perf_counter(), time.process_time()
        self.engine.step()
        return time.perf_counter() - clock, time.process_time() - cpu

    def finish(self) -> None:
        """Leave the engine idle."""
        self.engine.abort_request(self._names)


class DecodeSteps(Steps):
    """32 requests that each generate one token."""

    tokens_per_step = DECODE_REQUESTS

    def prepare(self) -> None:
        if self.engine.has_unfinished_requests():
            return
        for _ in range(DECODE_REQUESTS):
            self.add_request(1, 500)
        self.engine.step()  # their prompts


class PrefillSteps(Steps):
    """One prompt of 500 tokens."""

    tokens_per_step = PROMPT_TOKENS

    def prepare(self) -> None:
        self.add_request(PROMPT_TOKENS, 1)


def measure(steps: Steps, switch: Switch) -> tuple[list[Seconds], list[Seconds]]:
    """Each step, on and off, in pairs."""
    order = random.Random(13)
    on: list[Seconds] = []
    off: list[Seconds] = []
    for _ in range(WARM_UP_STEPS):
        steps.prepare()
        switch.off()
        steps.run()
        switch.on()
    deadline = time.monotonic() + MAX_SECONDS
    while len(on) < PAIRS and time.monotonic() < deadline:
        for is_on in order.sample([True, False], 2):
            steps.prepare()
            if is_on:
                on.append(steps.run())
                continue
            switch.off()
            off.append(steps.run())
            switch.on()
    steps.finish()
    return on, off


def compare(on: list[Seconds], off: list[Seconds]) -> dict[str, Any]:
    """The figures of one workload."""
    by_clock, by_cpu = (sorted(a[i] / b[i] for a, b in zip(on, off, strict=True)) for i in (0, 1))
    return {
        "ratio": round(statistics.median(by_clock), 4),
        "quartiles": [round(by_clock[len(by_clock) * q // 4], 4) for q in (1, 3)],
        "cpu_ratio": round(statistics.median(by_cpu), 4),
        "cpu_quartiles": [round(by_cpu[len(by_cpu) * q // 4], 4) for q in (1, 3)],
        "median_seconds_off": round(statistics.median(clock for clock, _ in off), 4),
        "pairs": len(on),
    }


def check_that_it_counted(worker: Any, at_least: dict[str, int]) -> None:
    """A hook that counts nothing costs nothing: refuse to report that."""
    from moescope.collector.expert_load import Row

    counter = worker.moescope.recorder._source.counter  # noqa: SLF001 - a check of the benchmark itself
    counts, rank_tokens = counter.read(), counter.read_rank_tokens()
    for row in (Row.PREFILL, Row.DECODE):
        counted = int(counts[0, row].sum()) // TOP_K
        # Steps that prepare a workload are counted too.
        assert counted >= at_least[row.name.lower()] > 0, f"only {counted} tokens counted with the hook on"
        assert rank_tokens[row].sum() > counted, "nothing counted by peer rank"


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "MOESCOPE_TIMING_SAMPLE": "1",
    }
    with endpoint() as url, tempfile.TemporaryDirectory() as folder:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = url
        make_believe_in_a_group(RANKS)
        llm = make_engine(folder)
        (worker,) = llm.collective_rpc(lambda worker: worker)
        switch = Switch(llm, worker)
        figures: dict[str, Any] = {}
        tokens: dict[str, int] = {}
        for phase, steps in (("prefill", PrefillSteps(llm)), ("decode", DecodeSteps(llm))):
            on, off = measure(steps, switch)
            tokens[phase] = len(on) * steps.tokens_per_step
            figures[phase] = compare(on, off)
            print(f"{phase}: {figures[phase]}", file=sys.stderr)
        check_that_it_counted(worker, tokens)
        parameters = sum(p.numel() for p in worker.model_runner.get_model().parameters())
        worker.shutdown()
    print_result(
        "vllm_hook_overhead",
        max(figures[phase]["ratio"] for phase in tokens),
        "throughput off / on, the worse of decode and prefill",
        at_most=1.03,
        parameters_millions=round(parameters / 1e6),
        threads=int(os.environ["OMP_NUM_THREADS"]),
        **figures,
    )


if __name__ == "__main__":
    main()
