"""A second, independent count: what the routers of a vLLM worker returned, by the test's own bookkeeping.

It is a vLLM plug-in of its own and shares nothing with moescope: it wraps ``BaseRouter._select_experts`` for
the ids and ``GPUModelRunner.execute_model`` for the phases, and keeps its totals in a file, renewed after
each step, so that they survive any end of the process.
"""

import json
import os
from pathlib import Path

import numpy as np

PHASES = ("prefill", "decode")


class Recount:
    """Totals of one worker."""

    def __init__(self):
        self.counts = {}  # (layer, phase): int64 [experts]
        self.tokens = {"prefill": 0, "decode": 0}
        self.steps = {"prefill": 0, "decode": 0, "mixed": 0}
        self.other_rows = 0  # of the first layer, outside any real step
        # Of contiguous blocks of experts: {phase: by rank}, a token once per rank; and each assignment.
        self.ranks = int(os.environ.get("RECOUNT_RANKS", "1"))
        self.rank_tokens = {phase: [0] * self.ranks for phase in PHASES}
        self.rank_assignments = {phase: [0] * self.ranks for phase in PHASES}
        self.is_watched = False  # whether a router has a callback that is not this plug-in's
        self._prompt_tokens = {}
        self._step = None

    def begin(self, runner, scheduler_output):
        computed = {}
        for new in scheduler_output.scheduled_new_reqs:
            self._prompt_tokens[new.req_id] = len(new.prompt_token_ids)
            computed[new.req_id] = new.num_computed_tokens
        cached = scheduler_output.scheduled_cached_reqs
        computed.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        tokens = dict(scheduler_output.num_scheduled_tokens)
        phases = {r: PHASES[computed[r] >= self._prompt_tokens[r]] for r in tokens}
        for request, count in tokens.items():
            self.tokens[phases[request]] += count
        kinds = set(phases.values())
        if kinds:
            self.steps["mixed" if len(kinds) > 1 else kinds.pop()] += 1
        self._step = (runner, phases, tokens)

    def end(self):
        self._step = None
        path = Path(os.environ["RECOUNT_FILE"])
        temporary = path.with_suffix(f".{os.getpid()}")  # tensor-parallel workers write the same, each
        temporary.write_text(
            json.dumps(
                {
                    "counts": [[*key, total.tolist()] for key, total in sorted(self.counts.items())],
                    "tokens": self.tokens,
                    "steps": self.steps,
                    "other_rows": self.other_rows,
                    "rank_tokens": self.rank_tokens,
                    "rank_assignments": self.rank_assignments,
                    "is_watched": self.is_watched,
                }
            )
        )
        temporary.replace(path)

    def note(self, ids, layer, experts):
        if self._step is None:
            self.other_rows += len(ids) if layer == 0 else 0
            return
        runner, phases, tokens = self._step
        order = runner.input_batch.req_ids
        phase_of_row = np.repeat([phases[r] for r in order], [tokens[r] for r in order])
        for phase in set(phase_of_row):
            total = self.counts.setdefault((layer, str(phase)), np.zeros(experts, dtype=np.int64))
            np.add.at(total, ids[: len(phase_of_row)][phase_of_row == phase].ravel(), 1)
        for phase, row in zip(phase_of_row, ids.tolist(), strict=False):
            ranks = [expert // (experts // self.ranks) for expert in row]
            for rank in ranks:
                self.rank_assignments[phase][rank] += 1
            for rank in set(ranks):
                self.rank_tokens[phase][rank] += 1


def load():
    """Entry point of the plug-in."""
    import torch
    from vllm.model_executor.layers.fused_moe.router.base_router import BaseRouter
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    if hasattr(BaseRouter, "recount"):
        return
    recount = BaseRouter.recount = Recount()
    sink = torch.zeros(1)

    # An operator, so that a traced graph calls it; it says that it changes `sink`, or it would be dropped.
    @torch.library.custom_op("recount::note", mutates_args=("sink",))
    def note(sink: torch.Tensor, ids: torch.Tensor, layer: int, experts: int) -> None:
        recount.note(ids.numpy(), layer, experts)

    select, execute, load_model = (
        BaseRouter._select_experts,
        CPUModelRunner.execute_model,
        CPUModelRunner.load_model,
    )

    def select_and_note(self, *args, **kwargs):
        weights, ids = select(self, *args, **kwargs)
        note(sink, ids, self.recount_layer, self.global_num_experts)
        return weights, ids

    def execute_and_note(self, scheduler_output, *args, **kwargs):
        recount.begin(self, scheduler_output)
        try:
            return execute(self, scheduler_output, *args, **kwargs)
        finally:
            recount.is_watched = any(r.capture_fn is not None for r in routers_of(self.model).values())
            recount.end()

    def load_and_number(self, *args, **kwargs):
        load_model(self, *args, **kwargs)
        for layer, router in routers_of(self.model).items():
            router.recount_layer = layer

    BaseRouter._select_experts = select_and_note
    CPUModelRunner.execute_model = execute_and_note
    CPUModelRunner.load_model = load_and_number


def routers_of(model):
    """Each router by the number in its path."""
    return {
        next(int(part) for part in path.split(".") if part.isdigit()): module.router
        for path, module in model.named_modules()
        if hasattr(module, "router")
    }
