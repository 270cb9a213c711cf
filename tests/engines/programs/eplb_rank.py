"""One rank of vLLM's load balancer, on the CPU: ``eplb_rank.py RANK RANKS STORE_FILE RESULT_FILE``.

vLLM refuses EPLB on a CPU in its configuration, so the balancer is put together here. Its own: ``EplbState``
with its maps and steps, the registry of policies, the rearrangement, the transfer of weights over gloo, the
plug-in's entry point. Stood in for: the parallel configuration, the model (two layers, 6 experts in 8 slots,
weights that say whose they are), the groups' coordinators, and the events that time a rearrangement.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import distributed
from vllm.distributed.eplb import eplb_state
from vllm.platforms import current_platform

import moescope.plugin

LAYERS, EXPERTS, SLOTS = 2, 6, 8
STEPS = 8  # of an interval; the first rearrangement comes after two


class Model:
    num_routed_experts = num_logical_experts = EXPERTS
    num_redundant_experts = SLOTS - EXPERTS
    num_physical_experts = SLOTS
    num_moe_layers = LAYERS
    num_expert_groups = 1
    moe_layers = ()

    def __init__(self, rank, ranks):
        self.num_local_physical_experts = SLOTS // ranks
        slots = range(rank * SLOTS // ranks, (rank + 1) * SLOTS // ranks)
        self.expert_weights = [
            [torch.tensor([[100.0 * layer + slot % EXPERTS] for slot in slots])] for layer in range(LAYERS)
        ]

    def set_eplb_state(self, *_maps):
        pass

    def held(self):
        """Experts whose weights are in this rank's slots, by layer."""
        return [
            [int(value - 100 * layer) for value in weights[0].flatten().tolist()]
            for layer, weights in enumerate(self.expert_weights)
        ]


class Untimed:
    def __init__(self, **_):
        pass

    def record(self):
        pass

    synchronize = record

    def elapsed_time(self, _other):
        return 0.0


def main(rank, ranks, store_file, result_file):
    distributed.init_process_group("gloo", init_method=f"file://{store_file}", rank=rank, world_size=ranks)
    group = SimpleNamespace(
        device_group=distributed.group.WORLD,
        cpu_group=distributed.group.WORLD,
        ranks=list(range(ranks)),
        world_size=ranks,
        device_communicator=None,
    )
    import vllm.distributed.parallel_state as state_of_ranks

    state_of_ranks._EP = state_of_ranks._EPLB = group
    state_of_ranks._NODE_COUNT = 1
    eplb_state.torch.Event = Untimed
    assert current_platform.is_cpu()

    moescope.plugin.load_vllm()
    model = Model(rank, ranks)
    config = SimpleNamespace(compute_hash=lambda: "tiny", model="tiny")
    eplb = SimpleNamespace(
        use_async=False,
        window_size=4,
        step_interval=STEPS,
        policy="default",
        communicator="torch_nccl",
        log_balancedness_interval=1,
    )
    parallel = SimpleNamespace(eplb_config=eplb, enable_elastic_ep=False, num_ubatches=0)
    state = eplb_state.EplbState(parallel, torch.device("cpu"))
    state.add_model(model, config)
    held = [model.held()]
    state.step(is_profile=True)
    for _ in range(STEPS + STEPS // 4):
        state.model_states["tiny"].expert_load_pass += torch.arange(SLOTS, dtype=torch.int32)
        state.step()
        if model.held() != held[-1]:
            held.append(model.held())
    table = state.model_states["tiny"].physical_to_logical_map.tolist()
    Path(result_file).write_text(json.dumps({"held": held, "map": table}))
    distributed.destroy_process_group()


main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
