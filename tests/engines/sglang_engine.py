"""As much of SGLang as counts: its configuration, its recorder, its routers' last step, and no kernels.

A :class:`Engine` stands where SGLang's model runner does. Everything that a router hands to the recorder, and
the recorder itself, is SGLang's own code from its wheel.
"""

from types import SimpleNamespace

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.engines.sglang_stubs import importing_sglang

with importing_sglang():
    from sglang.srt.configs.kimi_linear import KimiLinearConfig
    from sglang.srt.eplb import expert_distribution, expert_location
    from sglang.srt.eplb.expert_location_dispatch import ExpertLocationDispatchInfo
    from sglang.srt.layers import dp_attention
    from sglang.srt.layers.moe import topk as sglang_topk
    from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE
    from sglang.srt.layers.moe.utils import MoeA2ABackend
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode
    from sglang.srt.runtime_context import (
        derive_spawn_ranks,
        get_context,
        get_flags,
        get_parallel,
        get_resources,
    )

from moescope.collector.hooks.sglang import SglangHook
from moescope.collector.live_recorder import LiveRecorder
from moescope.collector.process_recorder import ProcessRecorder
from moescope.schemas.records import Attempt
from moescope.schemas.settings import Settings

KIMI_K3 = {
    "num_hidden_layers": 93,
    "num_experts": 896,
    "num_experts_per_token": 16,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
}


class InMemoryExporter:
    pending_bytes = 0

    def __init__(self):
        self.windows = []

    def export(self, window, timeout_seconds=None):
        self.windows.append(window)
        return Attempt(delivered=True)

    def close(self):
        pass

    def records(self, metric):
        return [record for window in self.windows for record in window.records if record.metric is metric]


class Hooked:
    """A hook, and what its recorders reported: by identity's component."""

    def __init__(self):
        self.exporters = {}
        self.recorders = []
        self.hook = SglangHook(self._make_recorder, self._make_process_recorder)

    def _make_recorder(self, identity, counter, *, placement=None, settings=None):
        return self._keep("rank", LiveRecorder, identity, counter, placement=placement)

    def _make_process_recorder(self, identity, *, settings=None):
        return self._keep(identity.component.value, ProcessRecorder, identity)

    def _keep(self, name, kind, identity, *counter, **placement):
        exporter = self.exporters.setdefault(name, InMemoryExporter())
        settings = Settings(interval_seconds=3600)
        recorder = kind(identity, *counter, lambda _: exporter, settings, **placement)
        self.recorders.append(recorder)
        return recorder

    def close(self):
        for recorder in self.recorders:
            recorder.close()


class Deployment:
    """What SGLang's processes have published, as far as it is read here; taken back at the end."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(expert_distribution, "get_device", lambda *_: "cpu")
        self._undo = []

    def publish(self, rank=0, a2a=None, **fields):
        """Replace what is published: the arguments, and the rank that the launcher gives a process."""
        self.end()
        override = get_context().override_server_args(served_model_name="tiny", device="cpu", **fields)
        override.install()
        self._undo.append(override.restore)
        parallel = get_parallel()
        scope = parallel.override(
            **derive_spawn_ranks(
                world_rank=rank,
                tp_size=parallel.tp_size,
                ep_join_rank_offset=0,
                attn_cp_size=1,
                attn_tp_size=parallel.attn_tp_size,
                moe_dp_size=1,
                moe_ep_size=parallel.moe_ep_size,
            ),
            dp_rank=None,
            attn_tp_rank=rank % parallel.attn_tp_size,
            attn_dp_rank=rank // parallel.attn_tp_size,
        )
        self._enter(scope)
        self._enter(get_flags().moe.override(a2a_backend=MoeA2ABackend(a2a or "none")))

    def _enter(self, scope):
        scope.__enter__()
        self._undo.append(lambda: scope.__exit__(None, None, None))

    def end(self):
        while self._undo:
            self._undo.pop()()
        get_resources().expert_distribution_recorder = None
        get_resources().expert_location_metadata = None


class Experts(FusedMoE):
    """A layer's routed experts: where they are, and no weights but one."""

    def __init__(self, layer_id, num_local_experts):
        torch.nn.Module.__init__(self)
        self.layer_id = layer_id
        self.num_local_experts = num_local_experts
        self.w13_weight = torch.nn.Parameter(torch.zeros(num_local_experts, 3, 5))
        self.w2_weight = torch.nn.Parameter(torch.zeros(num_local_experts, 5, 3))
        self.bias = torch.nn.Parameter(torch.zeros(num_local_experts))
        self.dispatcher = SimpleNamespace(dispatch=lambda ids: ids, combine=lambda ids: ids)

    def run_moe_core(self, dispatched):
        return dispatched

    def forward(self, ids):
        """SGLang's order of the three."""
        return self.dispatcher.combine(self.run_moe_core(self.dispatcher.dispatch(ids)))


class Engine:
    """One rank. ``route`` gives the ids ``[rows, top_k]`` that a layer's router selects."""

    def __init__(self, hooked, config, *, metadata=None, is_draft=False):
        self.hooked = hooked
        self.is_draft_worker = is_draft
        self.metadata = metadata
        self.device = "cpu"
        self.model_config = SimpleNamespace(hf_text_config=config, hf_config=config, context_len=79)
        self.layers = range(config.num_hidden_layers)
        self.model = torch.nn.Module()
        self.model.forward = self.run_layers
        self.passes = 0
        self.experts = {}

    def start(self, *, num_local_experts=13, layers=None):
        """Make SGLang's recorder by its own factory, then say that the model is loaded."""
        if not self.is_draft_worker:
            recorder = self.hooked.hook.make_expert_recorder(
                expert_distribution.ExpertDistributionRecorder.init_new, self.metadata, rank=0
            )
            expert_distribution.set_global_expert_distribution_recorder(recorder)
        for layer in layers or ():
            self.experts[layer] = [Experts(layer, num_local_experts)]
            self.model.add_module(str(layer), self.experts[layer][0])
        self.hooked.hook.rank.attach(self)
        return self

    def forward(self, batch, select):
        """As SGLang's model runner does it."""
        self.passes += 1
        recorder = expert_distribution.get_global_expert_distribution_recorder()
        with recorder.with_forward_pass(self.passes, batch) as outputs:
            self.model.forward(select)
        return outputs

    def run_layers(self, select):
        recorder = expert_distribution.get_global_expert_distribution_recorder()
        for layer in self.layers:
            with recorder.with_current_layer(layer):
                ids = select(layer)
                if ids is not None:
                    self.hand_over(layer, ids)
                    for experts in self.experts.get(layer, ()):
                        experts(ids)

    def hand_over(self, layer, logical_ids):
        """What follows SGLang's top-k: translation to physical ids where that is on, then the recorder."""
        config = sglang_topk.TopKConfig(top_k=logical_ids.shape[1], layer_id=layer)
        info = ExpertLocationDispatchInfo.init_new(layer_id=layer)
        weights = torch.ones(logical_ids.shape)
        if info is None:
            sglang_topk.build_precomputed_topk_output(weights, logical_ids, config, layer)
            return
        _, _, recorded = sglang_topk._post_process_topk_ids(
            logical_ids.clone(),
            weights,
            config,
            torch.empty(0, self.metadata.num_logical_experts),
            layer,
            expert_location_dispatch_info=info,
        )
        expert_distribution.get_global_expert_distribution_recorder().on_select_experts(topk_ids=recorded)


class Graph(TorchDispatchMode):
    """What a CUDA graph is: the kernels of one run, run again on the same memory without our Python."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result

    def replay(self):
        for func, args, kwargs, before in self.calls:
            result = func(*args, **kwargs)
            if isinstance(result, torch.Tensor) and result.data_ptr() != before.data_ptr():
                before.copy_(result)


def batch_of(mode, lengths=(), *, rids=None, prefix="r", **more):
    """A batch as SGLang's model runner gets it: ``lengths`` are tokens per request."""
    rows = sum(lengths)
    requests = len(lengths)
    batch = ForwardBatch(
        forward_mode=mode,
        batch_size=requests,
        input_ids=torch.zeros(rows, dtype=torch.int64),
        req_pool_indices=torch.arange(requests),
        seq_lens=torch.tensor(lengths or (0,)),
        out_cache_loc=torch.zeros(rows, dtype=torch.int64),
        seq_lens_sum=rows,
        positions=torch.arange(rows),
        rids=[f"{prefix}{i}" for i in range(requests)] if rids is None else rids,
    )
    if mode.is_extend():
        batch.extend_seq_lens_cpu = list(lengths)
    for name, value in more.items():
        setattr(batch, name, value)
    return batch


def distinct_ids(rows, num_experts, top_k, generator, skew=1.0):
    """Ids of a router: no expert twice in a row."""
    scores = torch.rand(rows, num_experts, generator=generator) ** skew
    return scores.topk(top_k, dim=1).indices.to(torch.int32)


def placed(physical_to_logical, num_logical, ep_size):
    """SGLang's own metadata of a placement, without a model class to ask."""
    table = torch.as_tensor(physical_to_logical)
    return expert_location.ExpertLocationMetadata._init_raw(
        ep_size=ep_size,
        physical_to_logical_map=table,
        logical_to_all_physical_map=expert_location._compute_logical_to_all_physical_map(
            physical_to_logical_map=table, num_logical_experts=num_logical, ep_size=ep_size, moe_ep_rank=0
        ),
        moe_ep_rank=0,
    )


__all__ = [
    "KIMI_K3",
    "Deployment",
    "Engine",
    "ForwardBatch",
    "ForwardMode",
    "Graph",
    "Hooked",
    "KimiLinearConfig",
    "batch_of",
    "distinct_ids",
    "dp_attention",
    "expert_distribution",
    "get_context",
    "get_resources",
    "placed",
]
