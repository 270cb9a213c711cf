"""The hook on workers that are made of vLLM's own routers and little else."""

import logging
import threading
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what torch and vLLM say of themselves while they are imported
    import vllm
    from vllm.config import VllmConfig
    from vllm.distributed import parallel_state
    from vllm.forward_context import DPMetadata, ForwardContext, override_forward_context
    from vllm.model_executor.layers.fused_moe.layer import MoERunner
    from vllm.model_executor.layers.fused_moe.router.cpu_router import CPURouter
    from vllm.v1.engine import utils as engine_utils
    from vllm.v1.worker.worker_base import WorkerBase

import moescope.plugin
from moescope.collector.hooks import vllm as hook
from moescope.collector.hooks import vllm_shutdown, vllm_worker
from moescope.collector.live_recorder import LiveRecorder
from moescope.collector.recorder import NullRecorder
from moescope.schemas import metrics
from moescope.schemas.records import Attempt
from moescope.schemas.settings import Settings

pytestmark = pytest.mark.engine

EXPERTS, TOP_K = 13, 3


class MoELayer(MoERunner):
    """A layer that routes with a real router and computes nothing."""

    def __init__(self, layer_id, *, kernel=None, experts=EXPERTS):
        torch.nn.Module.__init__(self)
        self.layer_name = f"model.layers.{layer_id}.mlp.experts"
        self.moe_config = SimpleNamespace(
            num_logical_experts=experts, experts_per_token=TOP_K, is_sequence_parallel=False
        )
        self.router = CPURouter(top_k=TOP_K, global_num_experts=experts)
        self.routed_experts = SimpleNamespace(
            quant_method=SimpleNamespace(
                is_monolithic=kernel is not None,
                moe_kernel=SimpleNamespace(impl=SimpleNamespace(fused_experts=kernel)),
            ),
            routing_sink=None,
            expert_map_manager=SimpleNamespace(placement_strategy="linear"),
        )


class InMemoryExporter:
    pending_bytes = 0

    def __init__(self):
        self.windows = []

    def export(self, window, timeout_seconds=None):
        self.windows.append(window)
        return Attempt(delivered=True)

    def close(self):
        pass

    def tokens(self):
        totals = {}
        for record in (r for w in self.windows for r in w.records if r.metric.name == "moe.tokens"):
            key = record.attributes.get("moe.phase") or record.attributes["moe.excluded"]
            totals[key] = totals.get(key, 0) + record.value
        return {key: total for key, total in totals.items() if total}

    def assignments(self):
        """Sums over the experts: {phase: [by layer]}."""
        totals = {}
        for record in (r for w in self.windows for r in w.records if r.metric.name == "moe.expert.tokens"):
            phase = record.attributes["moe.phase"]
            totals[phase] = totals.get(phase, 0) + record.counts_per_row_index.sum(axis=1)
        return {phase: total.tolist() for phase, total in totals.items()}


class Runner:
    """What the hook needs of Model Runner V1."""

    def __init__(self, layers):
        self.model = torch.nn.ModuleList(layers)
        self.input_batch = None
        self.captured = 0

    def get_model(self):
        return self.model

    def _dummy_run(self, num_tokens, **_):
        self.route(num_tokens)
        return "dummy"

    def _prepare_inputs(self, _scheduler_output, num_scheduled_tokens):
        return num_scheduled_tokens

    def capture_model(self):
        self.captured += 1
        return self.captured

    def step(self, requests):
        """One forward pass over ``(computed, prompt, scheduled)`` tokens of each request."""
        computed, prompt, scheduled = (np.array(column) for column in zip(*requests, strict=True))
        self.input_batch = SimpleNamespace(
            num_reqs=len(requests), num_computed_tokens_cpu=computed, num_prompt_tokens=prompt
        )
        self._prepare_inputs(None, scheduled)
        self.route(int(scheduled.sum()))

    def route(self, num_tokens):
        logits = torch.randn(num_tokens, EXPERTS)
        return [layer.router.select_experts(logits, logits) for layer in self.model]


def worker_of(runner):
    parallel = SimpleNamespace(
        use_ubatching=False,
        prefill_context_parallel_size=1,
        enable_expert_parallel=True,
        data_parallel_rank=0,
        data_parallel_size=1,
    )
    model = SimpleNamespace(served_model_name="tiny", get_total_num_hidden_layers=lambda: 4)
    return SimpleNamespace(
        load_model=lambda: "loaded",
        compile_or_warm_up_model=lambda: "warm",
        shutdown=lambda: "gone",
        synchronize_device=lambda: None,
        model_runner=runner,
        device=torch.device("cpu"),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=79),
        vllm_config=SimpleNamespace(
            additional_config={}, parallel_config=parallel, model_config=model, kv_transfer_config=None
        ),
    )


@pytest.fixture
def ranks(monkeypatch):
    """The process groups; a test changes their ranks and sizes."""
    groups = {name: SimpleNamespace(rank_in_group=0, world_size=1) for name in ("tp", "pp", "ep")}
    for name, group in groups.items():
        monkeypatch.setattr(parallel_state, f"get_{name}_group", lambda group=group: group)
    return SimpleNamespace(**groups)


class Watched:
    def __init__(self, layers):
        self.exporter = InMemoryExporter()
        self.recorders = []
        self.runner = Runner(layers)
        self.worker = worker_of(self.runner)
        watching = vllm_worker.WorkerHook(self.worker, self.make_recorder)
        watching.attempt(watching.watch)

    def make_recorder(self, identity, counter, *, placement=None, settings=None):
        recorder = LiveRecorder(
            identity, counter, lambda _: self.exporter, Settings(interval_seconds=3600), placement
        )
        self.recorders.append(recorder)
        return recorder

    def until_ready(self):
        assert self.worker.load_model() == "loaded"
        assert self.worker.compile_or_warm_up_model() == "warm"
        return self

    def shut_down(self):
        assert self.worker.shutdown() == "gone"


@pytest.fixture
def watched(ranks):
    made = []

    def make(*layers):
        made.append(Watched(layers))
        return made[-1]

    yield make
    for some in made:
        some.worker.shutdown()


def test_a_mixed_batch_is_counted_by_phase_in_batch_order(watched):
    engine = watched(MoELayer(0), MoELayer(3)).until_ready()

    # Two that decode around one that is in the second chunk of its prompt.
    engine.runner.step([(40, 13, 1), (32, 79, 23), (13, 13, 1)])

    engine.shut_down()
    assert engine.exporter.tokens() == {"prefill": 23, "decode": 2}
    assert engine.exporter.assignments() == {"prefill": [23 * TOP_K] * 2, "decode": [2 * TOP_K] * 2}
    (recorder,) = engine.recorders
    assert recorder.identity.shape.moe_layers == (0, 3)
    assert (recorder.identity.engine, recorder.identity.engine_version) == ("vllm", vllm.__version__)


def test_dummy_runs_are_warm_up_before_the_worker_is_ready_and_dummies_after(watched):
    engine = watched(MoELayer(0))
    engine.worker.load_model()
    engine.runner._dummy_run(num_tokens=13)
    engine.worker.compile_or_warm_up_model()
    assert engine.runner._dummy_run(5, uniform_decode=True) == "dummy"

    engine.shut_down()

    assert engine.exporter.tokens() == {"warmup": 13, "dummy": 5}
    assert engine.exporter.assignments() == {"prefill": [0], "decode": [0]}


def test_rows_that_pad_a_batch_are_padding(watched):
    engine = watched(MoELayer(0)).until_ready()
    engine.runner.step([(13, 13, 1)])
    engine.runner.route(8)  # the same step on another rank's graph: one row, padded to eight

    engine.shut_down()

    assert engine.exporter.tokens() == {"decode": 1, "padding": 7}


def test_rows_of_a_pass_that_nobody_announced_are_not_load(watched):
    engine = watched(MoELayer(0)).until_ready()
    engine.runner.route(23)

    engine.shut_down()

    assert engine.exporter.tokens() == {"padding": 23}


def test_reporting_starts_only_when_the_worker_is_ready(watched):
    engine = watched(MoELayer(0))
    engine.worker.load_model()
    assert not engine.recorders[0]._reporter.is_running

    engine.worker.compile_or_warm_up_model()

    assert engine.recorders[0]._reporter.is_running


def test_the_device_finishes_before_the_last_read(watched):
    engine = watched(MoELayer(0)).until_ready()
    # Work that was launched, and is computed only when it is waited for.
    engine.worker.synchronize_device = lambda: engine.runner.step([(0, 13, 13)])

    engine.shut_down()

    assert engine.exporter.tokens() == {"prefill": 13}


def test_the_counts_are_not_read_while_a_graph_is_captured(watched):
    engine = watched(MoELayer(0))
    is_readable = []
    capture = engine.runner.capture_model

    def look():
        is_readable.append(engine.recorders[0]._source.counter._copy._lock.acquire(blocking=False))

    def capture_and_look():
        other = threading.Thread(target=look)
        other.start()
        other.join()
        return capture()

    engine.runner.capture_model = capture_and_look
    engine.until_ready()

    assert engine.runner.capture_model() == 1
    assert is_readable == [False]


class FusedEverything:
    """A monolithic kernel that keeps its routing to itself."""

    def supports_routing_replay_capture(self):
        return False


def test_a_kernel_that_hides_its_routing_is_named_once_with_the_way_out(watched, caplog):
    engine = watched(MoELayer(0), MoELayer(2, kernel=FusedEverything()))

    with caplog.at_level(logging.WARNING, "moescope"):
        engine.until_ready()
        engine.runner.step([(0, 13, 13)])

    (warning,) = caplog.messages
    assert "FusedEverything of model.layers.2.mlp.experts does not say which experts" in warning
    assert "--moe-backend" in warning
    assert engine.recorders == []
    assert engine.runner.model[0].router.capture_fn is None
    assert engine.runner.model[1].routed_experts.routing_sink is None


def test_a_dense_model_is_left_alone_without_a_word(watched, caplog):
    engine = watched(torch.nn.Linear(2, 2))

    with caplog.at_level(logging.WARNING, "moescope"):
        engine.until_ready()

    assert caplog.messages == []
    assert engine.recorders == []


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ([MoELayer(0), MoELayer(1, experts=23)], "differ in (experts, top-k): [(13, 3), (23, 3)]"),
        ([MoELayer(0), MoELayer(2), MoELayer(2)], "layer 2 of tiny has more than one router"),
    ],
)
def test_a_model_of_no_single_shape_is_refused_with_the_reason(watched, caplog, layers, reason):
    engine = watched(*layers)

    with caplog.at_level(logging.WARNING, "moescope"):
        engine.until_ready()

    (warning,) = caplog.messages
    assert reason in warning
    assert engine.recorders == []


@pytest.mark.parametrize(
    ("setting", "value", "way_out"),
    [
        ("use_ubatching", True, "without --enable-dbo"),
        ("prefill_context_parallel_size", 2, "--prefill-context-parallel-size 1"),
    ],
)
def test_row_orders_that_cannot_be_followed_are_refused_with_the_way_out(
    watched, caplog, setting, value, way_out
):
    engine = watched(MoELayer(0))
    setattr(engine.worker.vllm_config.parallel_config, setting, value)

    with caplog.at_level(logging.WARNING, "moescope"):
        engine.until_ready()

    assert way_out in caplog.text
    assert engine.runner.model[0].router.capture_fn is None


def test_an_unexpected_failure_is_logged_and_the_worker_serves_on(watched, caplog):
    engine = watched(MoELayer(0)).until_ready()
    engine.runner.input_batch = None

    with caplog.at_level(logging.ERROR, "moescope"):
        assert engine.runner._prepare_inputs(None, "as it was") == "as it was"

    assert "serving goes on" in caplog.text
    assert engine.runner.model[0].router.capture_fn is None
    caplog.clear()
    engine.runner._prepare_inputs(None, "again")
    assert caplog.messages == []


def test_what_was_counted_before_a_failure_is_reported(watched):
    engine = watched(MoELayer(0)).until_ready()
    engine.runner.step([(0, 13, 13)])
    engine.runner.input_batch = None
    engine.runner._prepare_inputs(None, None)
    engine.runner.route(13)

    engine.shut_down()

    assert engine.exporter.tokens() == {"prefill": 13}


def test_a_failure_in_the_forward_pass_is_logged_once_and_the_pass_goes_on(watched, caplog):
    engine = watched(MoELayer(0), MoELayer(2)).until_ready()
    tap = engine.runner.model[0].router.capture_fn.func.__self__
    tap._ordinal_of_layer.clear()

    with caplog.at_level(logging.ERROR, "moescope"):
        engine.runner.step([(0, 13, 13)])
        engine.runner.step([(0, 13, 13)])

    (message,) = caplog.messages
    assert "layer 0 cannot be counted" in message
    assert [layer.router.capture_fn for layer in engine.runner.model] == [None, None]


def test_of_tensor_parallel_ranks_only_the_first_counts(watched, ranks):
    ranks.tp.rank_in_group, ranks.tp.world_size = 1, 2

    engine = watched(MoELayer(0)).until_ready()

    assert engine.recorders == []
    assert engine.runner.model[0].router.capture_fn is None


def test_a_tensor_parallel_rank_with_experts_of_its_own_reports_only_where_they_are(watched, ranks):
    for group in (ranks.tp, ranks.ep):
        group.rank_in_group, group.world_size = 1, 2

    engine = watched(MoELayer(0)).until_ready()
    engine.runner.route(13)
    engine.shut_down()

    assert engine.exporter.tokens() == {}
    (replicas,) = [
        record
        for window in engine.exporter.windows
        for record in window.records
        if record.metric.name == "moe.expert.replicas"
    ]
    assert replicas.counts_per_row_index[0].tolist() == [0] * 7 + [1] * 6


def test_a_callback_that_was_there_is_called_after_ours(watched):
    layer, seen = MoELayer(0), []
    layer.router.set_capture_fn(lambda ids: seen.append(len(ids)))
    engine = watched(layer).until_ready()

    engine.runner.step([(0, 13, 13)])

    engine.shut_down()
    assert seen == [13]
    assert engine.exporter.tokens() == {"prefill": 13}


def test_a_capturer_that_vllm_binds_later_gets_the_ids_too(watched):
    engine, seen = watched(MoELayer(0)), []
    engine.worker.load_model()
    engine.runner.model[0].router.set_capture_fn(lambda ids: seen.append(len(ids)))
    engine.worker.compile_or_warm_up_model()

    engine.runner.step([(0, 13, 13)])

    engine.shut_down()
    assert seen == [13]
    assert engine.exporter.assignments()["prefill"] == [13 * TOP_K]


def test_of_ids_gathered_from_all_data_parallel_ranks_only_its_own_are_counted(watched, ranks):
    engine = watched(MoELayer(0))
    engine.worker.vllm_config.parallel_config.data_parallel_rank = 1
    engine.worker.vllm_config.parallel_config.data_parallel_size = 3
    engine.until_ready()
    metadata = DPMetadata(torch.tensor([5, 13, 23]))
    context = ForwardContext(no_compile_layers={}, attn_metadata={}, slot_mapping={}, dp_metadata=metadata)

    with override_forward_context(context):
        engine.runner.step([(0, 13, 13)])  # this rank's alone
        engine.runner.route(5 + 13 + 23)  # gathered

    engine.shut_down()
    assert engine.exporter.assignments()["prefill"] == [2 * 13 * TOP_K]
    assert engine.exporter.tokens() == {"prefill": 13}


def by_rank(exporter, metric):
    totals = {}
    for record in (r for w in exporter.windows for r in w.records if r.metric is metric):
        phase = record.attributes["moe.phase"]
        totals[phase] = totals.get(phase, 0) + record.counts_per_row_index[0]
    return {phase: total.tolist() for phase, total in totals.items()}


def test_with_expert_parallelism_tokens_are_counted_by_the_rank_that_serves_them(watched, ranks):
    ranks.ep.world_size = 2  # experts 0 to 6, and 7 to 12
    engine = watched(MoELayer(0), MoELayer(1)).until_ready()

    engine.runner.step([(0, 13, 13)])
    engine.runner._dummy_run(5)

    engine.shut_down()
    tokens = by_rank(engine.exporter, metrics.RANK_TOKENS)["prefill"]
    assignments = by_rank(engine.exporter, metrics.RANK_ASSIGNMENTS)["prefill"]
    assert sum(assignments) == 13 * TOP_K * 2
    assert all(0 < t <= a for t, a in zip(tokens, assignments, strict=True))
    assert sum(tokens) >= 13 * 2


def test_traffic_by_rank_is_an_option_and_nothing_without_expert_parallelism(watched, ranks, monkeypatch):
    engine = watched(MoELayer(0)).until_ready()
    monkeypatch.setenv("MOESCOPE_RANK_TRAFFIC", "0")
    ranks.ep.world_size = 2
    switched_off = watched(MoELayer(0)).until_ready()

    for some in (engine, switched_off):
        some.runner.step([(0, 13, 13)])
        some.shut_down()
        assert by_rank(some.exporter, metrics.RANK_TOKENS) == {}
        assert by_rank(some.exporter, metrics.RANK_ASSIGNMENTS) == {}


class RunnerV2(Runner):
    """What the hook needs of Model Runner V2."""

    _prepare_inputs = property()  # V2 has none

    def prepare_inputs(self, batch, *_):
        return batch

    def step_v2(self, is_prefilling, tokens, padded):
        starts = np.concatenate(([0], np.cumsum(tokens)))
        self.prepare_inputs(
            SimpleNamespace(
                num_reqs=len(tokens),
                query_start_loc_np=starts,
                is_prefilling_np=np.array(is_prefilling),
                num_tokens_after_padding=padded,
            )
        )


def watched_v2(*layers):
    engine = Watched(layers)
    engine.runner = engine.worker.model_runner = RunnerV2(layers)
    return engine


def test_model_runner_v2_tells_its_phases_itself(ranks):
    engine = watched_v2(MoELayer(0)).until_ready()

    engine.runner.step_v2([False, True], [1, 13], padded=16)
    engine.runner.route(16)

    engine.shut_down()
    assert engine.exporter.tokens() == {"prefill": 13, "decode": 1, "padding": 2}


def test_real_looking_requests_of_a_warm_up_are_warm_up(ranks):
    engine = watched_v2(MoELayer(0))
    engine.worker.load_model()
    engine.runner.step_v2([False, True], [1, 13], padded=16)
    engine.worker.compile_or_warm_up_model()

    engine.shut_down()

    assert engine.exporter.tokens() == {"warmup": 14}


def test_sequence_parallel_ranks_count_their_own_share_of_the_rows(ranks):
    for group in (ranks.tp, ranks.ep):
        group.rank_in_group, group.world_size = 1, 2
    layer = MoELayer(0)
    layer.moe_config.is_sequence_parallel = True
    engine = watched_v2(layer)
    engine.until_ready()
    context = ForwardContext(no_compile_layers={}, attn_metadata={}, slot_mapping={}, dp_metadata=None)

    engine.runner.step_v2([False, True], [5, 10], padded=16)
    with override_forward_context(context):
        engine.runner.route(8)  # rows 8 to 16

    engine.shut_down()
    assert engine.exporter.tokens() == {"prefill": 7, "padding": 1}
    assert engine.exporter.assignments() == {"prefill": [7 * TOP_K], "decode": [0]}


@pytest.fixture
def unpatched():
    yield WorkerBase.__init__
    hook.uninstall()


def test_installing_twice_patches_once_and_can_be_undone(unpatched):
    assert hook.install(NullRecorder)
    once = WorkerBase.__init__
    assert hook.install(NullRecorder)

    assert WorkerBase.__init__ is once
    hook.uninstall()
    assert WorkerBase.__init__ is unpatched


def test_another_version_gets_one_clear_warning_and_nothing_is_patched(unpatched, monkeypatch, caplog):
    monkeypatch.setattr(vllm, "__version__", "0.33.1")

    with caplog.at_level(logging.WARNING, "moescope"):
        assert not hook.install(NullRecorder)

    (warning,) = caplog.messages
    assert "watches vLLM 0.32.x and leaves vLLM 0.33.1 alone" in warning
    assert WorkerBase.__init__ is unpatched


@pytest.mark.parametrize(("name", "value"), [("MOESCOPE_ENABLED", "0"), ("OTEL_SDK_DISABLED", "true")])
def test_switched_off_the_plugin_patches_nothing(unpatched, monkeypatch, name, value):
    monkeypatch.setenv(name, value)

    moescope.plugin.load_vllm()

    assert WorkerBase.__init__ is unpatched


def test_the_plugin_never_raises(unpatched, monkeypatch, caplog):
    def explode(*_):
        raise RuntimeError("on purpose")

    monkeypatch.setattr(hook, "install", explode)

    with caplog.at_level(logging.ERROR, "moescope"):
        moescope.plugin.load_vllm()

    assert "vLLM goes on without it" in caplog.text


def test_code_compiled_with_the_hook_is_not_taken_for_code_compiled_without_it():
    config = VllmConfig()
    without = config.compute_hash()

    vllm_worker._keep_compiled_code_apart(config)

    assert config.compute_hash() != without


def test_serve_gives_its_engine_time_to_flush_only_where_it_would_give_none():
    original = engine_utils.get_engine_process_shutdown_timeout
    assert original(0, 0) == 0
    try:
        vllm_shutdown.grant_time()
        vllm_shutdown.grant_time()
        granted = [
            engine_utils.get_engine_process_shutdown_timeout(*pair) for pair in ((0, 0), (30, 0), (0, 7.0))
        ]
    finally:
        vllm_shutdown.revoke_time()

    assert granted == [5.0, 0, 7.0]
    assert engine_utils.get_engine_process_shutdown_timeout is original
