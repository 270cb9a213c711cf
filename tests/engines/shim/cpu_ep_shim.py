"""What vLLM's CPU backend lacks for expert parallelism, so that a test can run it: a plug-in of its own.

Two things. The experts' kernel ignores which experts its rank holds: here the others' tokens get weight
zero. The communicator has no gather and scatter of unequal parts: here they are made of plain sends and
receives, in which every byte that goes to a peer is counted, by this file's own bookkeeping: the truth that a
test compares with. It shares nothing with moescope.
"""

import json
import os
from collections import Counter
from pathlib import Path


class Ledger:
    """Bytes that really went over the wire since the warm-up, kept in a file that survives any end."""

    def __init__(self):
        self.sent, self.received = Counter(), Counter()

    def write(self):
        path = Path(os.environ["CPU_EP_SHIM_FILE"])
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps({"sent": self.sent, "received": self.received}))
        temporary.replace(path)


ledger = Ledger()


def exchange(communicator, outgoing, incoming):
    """Send and receive one tensor per peer, by rank in the group; nothing where it is empty."""
    import torch
    import torch.distributed as dist

    group, ranks = communicator.device_group, communicator.ranks
    work = []
    for peer, tensor in incoming.items():
        if tensor.numel():
            work.append(dist.irecv(tensor.view(torch.uint8), src=ranks[peer], group=group))
            ledger.received[peer] += tensor.nbytes
    for peer, tensor in outgoing.items():
        if tensor.numel():
            work.append(dist.isend(tensor.contiguous().view(torch.uint8), dst=ranks[peer], group=group))
            ledger.sent[peer] += tensor.nbytes
    for each in work:
        each.wait()


def all_gatherv(self, input_, dim=0, sizes=None):
    """The rows of all ranks, in their order."""
    import torch

    assert dim == 0
    if isinstance(input_, list):
        return [all_gatherv(self, tensor, dim, sizes) for tensor in input_]
    sizes = sizes or [len(input_)] * self.world_size
    parts = [torch.empty((size, *input_.shape[1:]), dtype=input_.dtype) for size in sizes]
    parts[self.rank_in_group] = input_
    peers = [rank for rank in range(self.world_size) if rank != self.rank_in_group]
    exchange(self, dict.fromkeys(peers, input_), {peer: parts[peer] for peer in peers})
    return torch.cat(parts)


def reduce_scatterv(self, input_, dim=-1, sizes=None):
    """This rank's rows, added up over all ranks."""
    import torch

    assert dim == 0
    sizes = sizes or [len(input_) // self.world_size] * self.world_size
    parts = list(input_.split(sizes))
    own = parts[self.rank_in_group]
    peers = [rank for rank in range(self.world_size) if rank != self.rank_in_group]
    theirs = {peer: torch.empty_like(own.contiguous()) for peer in peers}
    exchange(self, {peer: parts[peer] for peer in peers}, theirs)
    ledger.write()
    return sum((part.float() for part in theirs.values()), own.float()).to(input_.dtype)


def apply_to_own_experts(apply):
    """The kernel, told only of the experts that this rank holds."""

    def applied(self, *args, **kwargs):
        expert_map = kwargs["expert_map"]
        if expert_map is not None:
            local = expert_map[kwargs["topk_ids"].long()]
            kwargs["topk_weights"] = kwargs["topk_weights"].masked_fill(local < 0, 0)
            kwargs["topk_ids"] = local.clamp(min=0).to(kwargs["topk_ids"].dtype)
        return apply(self, *args, **kwargs)

    return applied


def load():
    """Entry point of the plug-in; does nothing unless a file for its ledger is named."""
    if "CPU_EP_SHIM_FILE" not in os.environ:
        return
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts
    from vllm.v1.worker.cpu_worker import CPUWorker

    if hasattr(CpuCommunicator, "reduce_scatterv") and CpuCommunicator.reduce_scatterv is reduce_scatterv:
        return
    CpuCommunicator.all_gatherv = all_gatherv
    CpuCommunicator.reduce_scatterv = reduce_scatterv
    CPUUnquantizedExperts.apply = apply_to_own_experts(CPUUnquantizedExperts.apply)
    warm_up = CPUWorker.compile_or_warm_up_model

    def warm_up_and_forget(self):
        result = warm_up(self)
        ledger.sent.clear()
        ledger.received.clear()
        return result

    CPUWorker.compile_or_warm_up_model = warm_up_and_forget
