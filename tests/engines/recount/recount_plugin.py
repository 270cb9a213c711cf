"""A second, independent count: what the routers of a vLLM worker returned, by the test's own bookkeeping.

It is a vLLM plug-in of its own and shares nothing with moescope: it wraps ``BaseRouter._select_experts`` for
the ids and ``GPUModelRunner.execute_model`` for the phases, and keeps its totals in a file, renewed after each
step, so that they survive any end of the process.
"""

import json
import os
from pathlib import Path

import numpy as np

_PHASES = ("prefill", "decode")
_counts = {}  # (layer, phase) -> int64 [experts]
_tokens = {"prefill": 0, "decode": 0, "warmup": 0}
_prompt_tokens = {}  # request -> length of its prompt
_step = None  # (runner, {request: is prefill}, {request: tokens}) while a real step runs


def load():
    import torch
    from vllm.model_executor.layers.fused_moe.router.base_router import BaseRouter
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    if hasattr(BaseRouter, "recount_note"):
        return
    sink = torch.zeros(1)
    note = _define_note(torch)
    BaseRouter.recount_note = note
    select, execute, load_model = BaseRouter._select_experts, GPUModelRunner.execute_model, None

    def select_and_note(self, *args, **kwargs):
        weights, ids = select(self, *args, **kwargs)
        note(sink, ids, self.recount_layer, self.global_num_experts)
        return weights, ids

    def execute_and_note(self, scheduler_output, *args, **kwargs):
        global _step
        _step = _phases_of(self, scheduler_output)
        try:
            return execute(self, scheduler_output, *args, **kwargs)
        finally:
            _step = None
            _save()

    BaseRouter._select_experts = select_and_note
    GPUModelRunner.execute_model = execute_and_note
    _number_routers_after_loading()


def _number_routers_after_loading():
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    load_model = CPUModelRunner.load_model

    def load_and_number(self, *args, **kwargs):
        load_model(self, *args, **kwargs)
        for name, module in self.model.named_modules():
            if hasattr(module, "router"):
                module.router.recount_layer = next(int(part) for part in name.split(".") if part.isdigit())

    CPUModelRunner.load_model = load_and_number


def _define_note(torch):
    # An operator, so that a traced graph calls it too; it pretends to change `sink`, or it would be dropped.
    @torch.library.custom_op("recount::note", mutates_args=("sink",))
    def note(sink: torch.Tensor, ids: torch.Tensor, layer: int, experts: int) -> None:
        _note(ids.numpy(), layer, experts)

    return note


def _phases_of(runner, scheduler_output):
    computed = {}
    for new in scheduler_output.scheduled_new_reqs:
        _prompt_tokens[new.req_id] = len(new.prompt_token_ids)
        computed[new.req_id] = new.num_computed_tokens
    cached = scheduler_output.scheduled_cached_reqs
    computed.update(zip(cached.req_ids, cached.num_computed_tokens))
    tokens = dict(scheduler_output.num_scheduled_tokens)
    is_prefill = {request: computed[request] < _prompt_tokens[request] for request in tokens}
    for request, n in tokens.items():
        _tokens["prefill" if is_prefill[request] else "decode"] += n
    return runner, is_prefill, tokens


def _note(ids, layer, experts):
    if _step is None:
        if layer == 0:
            _tokens["warmup"] += len(ids)
        return
    runner, is_prefill, tokens = _step
    order = runner.input_batch.req_ids
    prefill = np.repeat([is_prefill[r] for r in order], [tokens[r] for r in order])
    for phase, rows in zip(_PHASES, (prefill, ~prefill)):
        total = _counts.setdefault((layer, phase), np.zeros(experts, dtype=np.int64))
        np.add.at(total, ids[: len(prefill)][rows].ravel(), 1)


def _save():
    path = Path(os.environ["RECOUNT_FILE"])
    counts = [[layer, phase, total.tolist()] for (layer, phase), total in sorted(_counts.items())]
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps({"counts": counts, "tokens": _tokens}))
    temporary.replace(path)
