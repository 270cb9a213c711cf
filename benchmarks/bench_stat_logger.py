"""What the stat logger costs vLLM's front end per engine step, beside vLLM's own Prometheus logger.

Both record the same steps of real `IterationStats`: decode steps of so many requests, one of which ends in
every tenth step and another begins. A logger runs on the event loop that also sends the answers, so what
counts is the time that one step takes it.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine import print_result

IS_QUICK = "--quick" in sys.argv
STEPS = 50 if IS_QUICK else 2000
BATCHES = (32, 256)
CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 64,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}


def steps_of(batch: int) -> list[tuple[Any, Any]]:
    """What vLLM hands its loggers for decode steps of ``batch`` requests."""
    from vllm.v1.engine import FinishReason
    from vllm.v1.metrics.stats import FinishedRequestStats, IterationStats, SchedulerStats

    steps = []
    for index in range(STEPS):
        stats = IterationStats()
        stats.num_generation_tokens = batch
        stats.inter_token_latencies_iter = [0.02 + request * 1e-5 for request in range(batch)]
        if index % 10 == 0:
            stats.time_to_first_tokens_iter = [0.3]
            stats.finished_requests = [
                FinishedRequestStats(
                    FinishReason.LENGTH,
                    e2e_latency=3.0,
                    num_prompt_tokens=1300,
                    num_generation_tokens=131,
                    decode_time=2.6,
                    queued_time=0.01,
                    mean_time_per_output_token=0.02,
                    num_cached_tokens=640,
                )
            ]
        steps.append((SchedulerStats(num_running_reqs=batch, kv_cache_usage=0.5), stats))
    return steps


def microseconds(record: Callable[[Any, Any], Any], steps: list[tuple[Any, Any]]) -> float:
    """Mean time of one step; the median of five passes."""
    passes = []
    for _ in range(5):
        started = time.perf_counter()
        for scheduler_stats, iteration_stats in steps:
            record(scheduler_stats, iteration_stats)
        passes.append((time.perf_counter() - started) / len(steps) * 1e6)
    return statistics.median(passes)


def main() -> None:
    """Measure both loggers, and print what a step costs."""
    warnings.simplefilter("ignore")
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.metrics.loggers import PrometheusStatLogger

    from moescope.plugin import VllmStatLogger

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(CONFIG))
        config = EngineArgs(model=folder, skip_tokenizer_init=True).create_engine_config()
    ours, theirs = VllmStatLogger(config, 0), PrometheusStatLogger(config, [0])
    figures = {}
    for batch in BATCHES:
        steps = steps_of(batch)
        for name, logger in (("moescope", ours), ("prometheus", theirs)):
            figures[f"{name}_us_per_step_of_{batch}"] = round(microseconds(logger.record, steps), 1)
    ratio = (
        figures[f"moescope_us_per_step_of_{BATCHES[-1]}"]
        / figures[f"prometheus_us_per_step_of_{BATCHES[-1]}"]
    )
    print_result("stat_logger", ratio, "of what vLLM's own logger takes", at_most=0.5, **figures)


if __name__ == "__main__":
    main()
