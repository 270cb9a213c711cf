"""Where the vLLM hook takes times, bytes and sizes: on vLLM's own kernel classes, without an engine."""

import logging
import warnings
from types import SimpleNamespace

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what torch and vLLM say of themselves while they are imported
    from vllm.config import CompilationMode
    from vllm.distributed import parallel_state
    from vllm.distributed.device_communicators.all2all import AgRsAll2AllManager, PassThroughAll2AllManager
    from vllm.model_executor.layers.fused_moe import modular_kernel
    from vllm.model_executor.layers.fused_moe.prepare_finalize import naive_dp_ep, no_dp_ep

from moescope.collector.forward_pass import NO_LOAD, ForwardPass
from moescope.collector.hooks import vllm_memory, vllm_timing, vllm_traffic
from moescope.collector.tally import Tally
from moescope.schemas import metrics
from moescope.schemas.attributes import DIRECTION, LAYER, PHASE, POOL, DispatchStage
from moescope.schemas.settings import Settings
from moescope.schemas.topology import every_layer_from

pytestmark = pytest.mark.engine

SHAPE = every_layer_from("tiny", 1, 3, num_experts=13, top_k=3)
EAGER = SimpleNamespace(compilation_config=SimpleNamespace(mode=CompilationMode.NONE))
COMPILED = SimpleNamespace(compilation_config=SimpleNamespace(mode=CompilationMode.VLLM_COMPILE))


def layer_with(prepare_finalize, layer_id=1, *, is_monolithic=False):
    impl = object.__new__(modular_kernel.FusedMoEKernelModularImpl)
    impl.prepare_finalize = prepare_finalize
    kernel = SimpleNamespace(impl=impl, fused_experts=None)
    if is_monolithic:
        kernel = SimpleNamespace(impl=object(), fused_experts=AllInOne())
    method = SimpleNamespace(is_monolithic=is_monolithic, moe_kernel=kernel)
    return SimpleNamespace(layer_id=layer_id, routed_experts=SimpleNamespace(quant_method=method))


class AllInOne:
    pass


LOCAL = no_dp_ep.MoEPrepareAndFinalizeNoDPEPModular()
GATHERING = naive_dp_ep.MoEPrepareAndFinalizeNaiveDPEPModular()


def worker_of(vllm_config=EAGER, device="cpu"):
    return SimpleNamespace(vllm_config=vllm_config, device=SimpleNamespace(type=device))


def test_a_kernel_that_exchanges_tokens_has_three_seams():
    seams = vllm_timing.seams_of(layer_with(GATHERING, 2))

    assert [(seam.stage, seam.layer) for seam in seams] == [
        (DispatchStage.DISPATCH, 2),
        (None, 2),
        (DispatchStage.COMBINE, 2),
    ]
    assert all(callable(getattr(seam.target, seam.method)) for seam in seams)


def test_a_kernel_whose_tokens_stay_has_no_dispatch_and_no_combine():
    (seam,) = vllm_timing.seams_of(layer_with(LOCAL))

    assert seam.stage is None


@pytest.mark.parametrize(
    ("worker", "layer", "reason"),
    [
        (worker_of(COMPILED), layer_with(LOCAL), "torch.compile traces"),
        (worker_of(), layer_with(LOCAL, is_monolithic=True), "AllInOne computes dispatch, experts"),
        (worker_of(device="xpu"), layer_with(LOCAL), "not timed on xpu"),
    ],
)
def test_what_cannot_be_timed_is_said_once_with_the_reason(caplog, worker, layer, reason):
    caplog.set_level(logging.INFO, "moescope")

    vllm_timing.time_passes(Tally(), worker, SHAPE, [layer], Settings())

    (message,) = caplog.messages
    assert reason in message


def test_an_eager_modular_kernel_is_timed_without_a_word(caplog):
    caplog.set_level(logging.INFO, "moescope")

    timing = vllm_timing.time_passes(Tally(), worker_of(), SHAPE, [layer_with(LOCAL)], Settings())

    assert timing is not None
    assert caplog.messages == []


class Manager(AgRsAll2AllManager):
    """The real one, with its group and sizes given: rank 1 of three; nothing is sent."""

    def __init__(self, sizes=(5, 13, 23)):
        self.sizes = list(sizes)
        self.group = SimpleNamespace(
            rank_in_group=1,
            world_size=3,
            ranks=[4, 6, 8],
            all_gatherv=lambda tensors, **_: tensors,
            reduce_scatterv=lambda tensor, **_: tensor,
            reduce_scatterv_into_output=lambda tensor, *_, **__: tensor,
        )

    def _get_comm_group(self, is_sequence_parallel):
        return self.group

    def _get_sizes(self, num_local_tokens, comm_group):
        return self.sizes


@pytest.fixture
def exchange(monkeypatch):
    """``exchange(manager)``: its traffic, watched, on an EP group of six in which it is every other rank."""

    def watch(manager, vllm_config=EAGER, **options):
        meter = Tally()
        group = SimpleNamespace(
            ranks=[3, 4, 5, 6, 7, 8], device_communicator=SimpleNamespace(all2all_manager=manager)
        )
        monkeypatch.setattr("vllm.distributed.get_ep_group", lambda: group)
        traffic = vllm_traffic.Traffic(meter, SHAPE, 6, by_layer=options.get("by_layer", False))
        is_watched = vllm_traffic.watch_exchange(traffic, vllm_config)
        return SimpleNamespace(traffic=traffic, meter=meter, is_watched=is_watched)

    return watch


def io_of(exchange):
    exchange.traffic.report()
    return {
        (r.attributes[DIRECTION], r.attributes[PHASE]): r.counts_per_row_index
        for r in exchange.meter.close_window(snapshot=False)
        if r.metric is metrics.RANK_IO
    }


def dispatch(manager, rows=13, **extra):
    hidden = torch.zeros(rows, 8, dtype=torch.bfloat16)  # 16 bytes
    weights, ids = torch.zeros(rows, 3), torch.zeros(rows, 3, dtype=torch.int32)  # 12 each
    return manager.dispatch(hidden, weights, ids, **extra)


def combine(manager, rows=5 + 13 + 23):
    return manager.combine(torch.zeros(rows, 8, dtype=torch.bfloat16))


def test_bytes_of_dispatch_and_combine_are_rows_times_their_size(exchange):
    manager = Manager()
    seen = exchange(manager)
    seen.traffic.begin(ForwardPass(decode_rows=13))

    assert len(dispatch(manager)) == 3
    assert len(combine(manager)) == 41

    io = {direction: counts[0].tolist() for (direction, _), counts in io_of(seen).items()}
    assert io == {
        "transmit": [0, 13 * 40 + 5 * 16, 0, 0, 0, 13 * 40 + 23 * 16],
        "receive": [0, 5 * 40 + 13 * 16, 0, 0, 0, 23 * 40 + 13 * 16],
    }


def test_tensors_that_go_along_are_counted(exchange):
    manager = Manager()
    seen = exchange(manager)
    seen.traffic.begin(ForwardPass(decode_rows=13))

    dispatch(manager, extra_tensors=[torch.zeros(13, 2, dtype=torch.float32)])

    assert io_of(seen)["transmit", "decode"][0].tolist() == [0, 13 * 48, 0, 0, 0, 13 * 48]


def test_own_rows_are_divided_by_phase_and_nothing_is_lost(exchange):
    manager = Manager()
    seen = exchange(manager)
    seen.traffic.begin(ForwardPass(prefill_rows=8, decode_rows=5))

    dispatch(manager)

    io = io_of(seen)
    assert io["transmit", "prefill"][0, 1] == 8 * 40
    assert io["transmit", "decode"][0, 1] == 5 * 40
    assert io["receive", "prefill"][0].tolist() == [0, 5 * 40, 0, 0, 0, 23 * 40]


def test_a_pass_that_only_keeps_the_others_company_sends_bytes_too(exchange):
    manager = Manager()
    seen = exchange(manager)
    seen.traffic.begin(NO_LOAD)

    dispatch(manager, 13)

    assert io_of(seen)["transmit", "decode"].sum() == 2 * 13 * 40


def test_layers_are_told_apart_by_their_turn_where_they_were_asked_for(exchange):
    manager = Manager()
    seen = exchange(manager, by_layer=True)
    for _ in range(2):
        seen.traffic.begin(ForwardPass(decode_rows=13))
        dispatch(manager)
        dispatch(manager)
        combine(manager)

    sent = io_of(seen)["transmit", "decode"]

    assert sent.shape == (2, 6)
    assert sent[:, 1].tolist() == [2 * (13 * 40 + 5 * 16), 2 * 13 * 40]


def test_what_was_reported_is_not_reported_again(exchange):
    manager = Manager()
    seen = exchange(manager)
    seen.traffic.begin(ForwardPass(decode_rows=13))
    dispatch(manager)
    io_of(seen)

    assert io_of(seen) == {}


def test_a_replayed_pass_is_said_once(exchange, caplog):
    caplog.set_level(logging.INFO, "moescope")
    seen = exchange(Manager())
    for _ in range(3):
        seen.traffic.begin(ForwardPass(decode_rows=13))

    (message,) = caplog.messages
    assert "replayed from a graph" in message


@pytest.mark.parametrize(
    ("manager", "config", "reason"),
    [
        (None, EAGER, "add up results"),
        (object.__new__(PassThroughAll2AllManager), EAGER, "PassThroughAll2AllManager packs"),
        (Manager(), COMPILED, "torch.compile traces"),
    ],
)
def test_an_exchange_whose_bytes_are_not_known_is_said_with_the_reason(
    exchange, caplog, manager, config, reason
):
    caplog.set_level(logging.INFO, "moescope")

    assert not exchange(manager, config).is_watched

    (message,) = caplog.messages
    assert reason in message


def test_a_failure_is_logged_once_and_the_exchange_goes_on(exchange, caplog):
    manager = Manager()
    exchange(manager)
    manager.group.ranks = ["nobody"]

    with caplog.at_level(logging.ERROR, "moescope"):
        for _ in range(2):
            assert len(combine(manager)) == 41

    (message,) = caplog.messages
    assert "serving goes on" in message


class Experts(torch.nn.Module):
    """Seven physical experts here, of 14 in all."""

    local_num_experts = 7

    def __init__(self, width=5):
        super().__init__()
        self.w13_weight = torch.nn.Parameter(torch.zeros(7, width, 2, dtype=torch.bfloat16))
        self.w2_weight = torch.nn.Parameter(torch.zeros(7, 2, width, dtype=torch.bfloat16))
        self.w13_input_scale = torch.nn.Parameter(torch.zeros(7))
        self.e_score_correction_bias = torch.nn.Parameter(torch.zeros(13))


def layer_of(layer_id, experts, physical=14):
    return SimpleNamespace(
        layer_id=layer_id,
        routed_experts=experts,
        moe_config=SimpleNamespace(num_experts=physical, num_logical_experts=13),
    )


def memory_of(layers, worker, eplb=None):
    meter = Tally()
    model = torch.nn.ModuleList([layer.routed_experts for layer in layers])
    vllm_memory.report_memory(meter, worker, model, layers, eplb)
    values = {"pools": {}, "expert": {}}
    for record in meter.close_window(snapshot=True):
        if record.metric is metrics.MEMORY_USAGE:
            values["pools"][record.attributes[POOL]] = record.value
        if record.metric is metrics.EXPERT_WEIGHT_SIZE:
            values["expert"][record.attributes.get(LAYER)] = record.value
    return values


EXPERT_BYTES = 2 * 5 * 2 * 2


def test_on_the_cpu_the_weights_are_the_parameters_and_nothing_is_made_up():
    layers = [layer_of(1, Experts(), physical=13), layer_of(2, Experts(), physical=13)]

    memory = memory_of(layers, SimpleNamespace(model_runner=SimpleNamespace()))

    assert memory == {
        "pools": {"weights": 2 * (7 * EXPERT_BYTES + 7 * 4 + 13 * 4)},
        "expert": {None: EXPERT_BYTES},
    }


def test_the_pools_of_a_gpu_worker_do_not_overlap():
    layers = [layer_of(1, Experts())]
    worker = SimpleNamespace(
        model_runner=SimpleNamespace(model_memory_usage=10_000),
        total_consumed=13_000,
        peak_activation_memory=2_300,
    )
    eplb = SimpleNamespace(expert_buffer=[torch.zeros(7, 10, dtype=torch.bfloat16)])

    pools = memory_of(layers, worker, eplb)["pools"]

    assert pools == {
        "weights": 10_000 - EXPERT_BYTES // 2,
        "replication": EXPERT_BYTES // 2,
        "transfer": 140,
        "runtime": 13_000 + 2_300 - 10_000 - 140,
    }
    assert sum(pools.values()) == 13_000 + 2_300


def test_layers_of_different_sizes_are_told_apart():
    layers = [layer_of(1, Experts()), layer_of(4, Experts(width=10))]

    memory = memory_of(layers, SimpleNamespace(model_runner=SimpleNamespace()))

    assert memory["expert"] == {1: EXPERT_BYTES, 4: 2 * EXPERT_BYTES}


def test_the_process_groups_that_are_asked_are_vllms_own():
    assert callable(parallel_state.get_ep_group)
