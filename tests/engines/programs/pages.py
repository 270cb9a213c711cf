"""Write vLLM's page after each round: ``pages.py MODEL ROUNDS FOLDER`` makes FOLDER/0.prom, FOLDER/1.prom, …

ROUNDS is a list of batches of ``[prompt tokens, generated tokens]``; prompts begin alike.
"""

import json
import sys
from pathlib import Path

from prometheus_client import generate_latest
from vllm import LLM, SamplingParams


def main():
    model, rounds, folder = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])
    llm = LLM(
        model,
        skip_tokenizer_init=True,
        max_model_len=512,
        dtype="bfloat16",
        max_num_seqs=8,
        enforce_eager=True,
        disable_log_stats=False,
    )
    for number, batch in enumerate(rounds):
        for prompt, generated in batch:  # one by one: the next may find this one in the prefix cache
            parameters = SamplingParams(max_tokens=generated, ignore_eos=True, detokenize=False)
            llm.generate([{"prompt_token_ids": list(range(prompt))}], parameters, use_tqdm=False)
        (folder / f"{number}.prom").write_bytes(generate_latest())


if __name__ == "__main__":
    main()
