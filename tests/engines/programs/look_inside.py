"""Generate with vLLM's offline engine, and look into its core: ``look_inside.py MODEL OPTIONS ROUNDS``.

Arguments as those of ``generate.py``. All requests of a round run at once; after ten steps of the first
round every recorder of this process hands over its window, while the engine stands still and its blocks are
counted.
"""

import json
import os
import sys
from pathlib import Path

from generate import prompt
from vllm import LLM, SamplingParams
from vllm.v1.metrics.reader import Counter, Histogram, Vector
from vllm.v1.worker import mamba_utils

from moescope.collector import process_end


class CopiesOfStates:
    """What the worker copies: it asks for the addresses of each copy, for all cache groups together."""

    def __init__(self):
        self.count = 0
        self.original = mamba_utils.collect_mamba_copy_meta
        mamba_utils.collect_mamba_copy_meta = self

    def __call__(self, *args):
        _buffers, _config, _functions, group_ids, source, target, *_ = args
        self.count += len(group_ids) if source != target else 0
        return self.original(*args)


def run_round(engine, batch, name, look=None):
    for index, (tokens, generated, seed) in enumerate(batch):
        parameters = SamplingParams(max_tokens=generated, ignore_eos=True, detokenize=False)
        engine.add_request(f"{name}-{index}", prompt(tokens, seed), parameters)
    steps = 0
    while engine.has_unfinished_requests():
        yield from (output for output in engine.step() if output.finished)
        steps += 1
        if look is not None and steps == 10:
            look()


def account_of(metrics):
    """vLLM's own numbers: counters (by source where they have one), and histograms as (count, sum)."""
    account = {}
    for metric in metrics:
        if isinstance(metric, Counter):
            key = metric.name + "".join(f"[{metric.labels[k]}]" for k in ("source",) if k in metric.labels)
            account[key] = metric.value
        elif isinstance(metric, Histogram):
            account[metric.name] = (metric.count, metric.sum)
        elif isinstance(metric, Vector):
            account[metric.name] = metric.values
    return account


def main():
    model, options, rounds = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    copies = CopiesOfStates()
    llm = LLM(model, skip_tokenizer_init=True, max_model_len=512, dtype="bfloat16", max_num_seqs=8, **options)
    engine = llm.llm_engine
    pool = engine.engine_core.engine_core.scheduler.kv_cache_manager.block_pool
    config = engine.engine_core.engine_core.scheduler.kv_cache_config
    looked = {}

    def look():
        looked["free_blocks"] = pool.get_num_free_blocks()
        looked["flushed"] = [recorder.flush() for recorder in process_end._closables]

    outputs = []
    for index, batch in enumerate(rounds):
        outputs += run_round(engine, batch, index, look if index == 0 else None)
    result = {
        **looked,
        "num_blocks": pool.num_gpu_blocks,
        "block_size": engine.vllm_config.cache_config.block_size,
        "pool_bytes": config.kv_cache_tensors[0].size,
        "groups": [
            [type(group.kv_cache_spec).__name__, len(group.layer_names)] for group in config.kv_cache_groups
        ],
        "copies": copies.count,
        "cached_tokens": [output.num_cached_tokens for output in outputs],
        "prompt_tokens": [len(output.prompt_token_ids) for output in outputs],
        "generated_tokens": [len(output.outputs[0].token_ids) for output in outputs],
        "metrics": account_of(llm.get_metrics()),
    }
    Path(os.environ["RESULT_FILE"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
