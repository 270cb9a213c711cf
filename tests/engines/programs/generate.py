"""Generate with vLLM's offline engine: ``generate.py MODEL OPTIONS ROUNDS``, its account in ``RESULT_FILE``.

OPTIONS are the engine's; ROUNDS is a list of batches of ``[prompt tokens, generated tokens, seed]``, where
the same seed makes the same prompt.
"""

import json
import os
import random
import sys
from pathlib import Path

from vllm import LLM, SamplingParams


def prompt(tokens, seed):
    numbers = random.Random(seed)
    return {"prompt_token_ids": [numbers.randrange(512) for _ in range(tokens)]}


def main():
    model, options, rounds = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    llm = LLM(model, skip_tokenizer_init=True, max_model_len=512, dtype="bfloat16", max_num_seqs=8, **options)
    outputs = []
    for batch in rounds:
        parameters = [SamplingParams(max_tokens=n, ignore_eos=True, detokenize=False) for _, n, _ in batch]
        outputs += llm.generate([prompt(n, seed) for n, _, seed in batch], parameters, use_tqdm=False)
    result = {
        "prompt_tokens": sum(len(o.prompt_token_ids) for o in outputs),
        "cached_tokens": sum(o.num_cached_tokens for o in outputs),
        "generated_tokens": sum(len(o.outputs[0].token_ids) for o in outputs),
        "finished": len(outputs),
        "texts": [list(o.outputs[0].token_ids) for o in outputs],
    }
    Path(os.environ["RESULT_FILE"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
