"""One vLLM worker, followed from its model's loading to its end.

What happens at each point of its life: its model is loaded (find the routers, bind them, make the recorder),
profiled and warmed up (counted as warm-up), ready (start reporting), serves (say what the rows of each step
are), ends (flush). Whatever fails is logged, and the worker serves on without telemetry.
"""

from __future__ import annotations

import functools
import importlib.metadata
import logging
from collections.abc import Callable
from typing import Any, Protocol

from moescope.collector.expert_load import ExpertCounter, NumpyExpertCounter
from moescope.collector.expert_load_torch import TorchExpertCounter
from moescope.collector.gpu import watch_gpu
from moescope.collector.hooks import (
    vllm_layers,
    vllm_memory,
    vllm_placement,
    vllm_policy,
    vllm_ranks,
    vllm_router,
    vllm_steps,
    vllm_timing,
    vllm_traffic,
)
from moescope.collector.hooks.vllm_wrap import pause_reads_in, wrap
from moescope.collector.live_recorder import LiveRecorder
from moescope.collector.rank_io_torch import TorchRankIoCounter
from moescope.collector.recorder import NullRecorder
from moescope.schemas.errors import MoescopeError
from moescope.schemas.identity import EngineIdentity
from moescope.schemas.settings import Settings, load_engine_settings
from moescope.schemas.topology import ModelShape, Placement

logger = logging.getLogger("moescope")


class MakeRecorder(Protocol):
    """What :func:`moescope.api.make_recorder` offers."""

    def __call__(
        self,
        identity: EngineIdentity,
        counter: ExpertCounter,
        *,
        placement: Placement | None = None,
        settings: Settings | None = None,
    ) -> LiveRecorder | NullRecorder:
        """Put a recorder together; it reports once it is started."""


class WorkerHook:
    """Follows one worker from its model's loading to its end."""

    def __init__(self, worker: Any, make_recorder: MakeRecorder) -> None:
        self._worker = worker
        self._make_recorder = make_recorder
        self._recorder: LiveRecorder | NullRecorder = NullRecorder()
        self._tap: vllm_router.RouterTap | None = None
        self._steps: vllm_steps.StepWatch | None = None
        self._when_warm: Callable[[], None] = lambda: None
        self._has_given_up = False

    @property
    def recorder(self) -> LiveRecorder | NullRecorder:
        """Where the worker's steps go; a null recorder until its model is loaded, or for good."""
        return self._recorder

    def watch(self) -> None:
        """Wrap the worker's own methods."""
        _keep_compiled_code_apart(self._worker.vllm_config)
        wrap(self._worker, "load_model", after=lambda *_: self.attempt(self._attach))
        wrap(
            self._worker,
            "compile_or_warm_up_model",
            before=lambda *_, **__: self.attempt(self._before_warm_up),
            after=lambda *_: self.attempt(self._after_warm_up),
        )
        wrap(self._worker, "shutdown", before=lambda *_, **__: self._end())

    def attempt(self, action: Callable[..., None], *args: Any) -> None:
        """Do it, or give up watching for good: the hook may fail, serving may not."""
        if self._has_given_up:
            return
        try:
            action(*args)
        except MoescopeError as reason:
            logger.warning("moescope: expert load is not counted: %s", reason)
            self._give_up()
        except Exception:
            logger.exception("moescope: expert load is not counted any more; serving goes on")
            self._give_up()

    def _attach(self) -> None:
        worker = self._worker
        runner, config = worker.model_runner, worker.vllm_config
        model = runner.get_model()
        layers = vllm_layers.find_moe_layers(model)
        if not layers:
            logger.info("moescope: the model has no routed experts; there is nothing to count")
            return
        ranks = vllm_ranks.find_ranks(
            config, is_sequence_parallel=vllm_layers.is_sequence_parallel(model, layers)
        )
        if not ranks.reports:
            return
        name = vllm_ranks.name_of_model(config)
        shape = vllm_layers.shape_of(name, config.model_config.get_total_num_hidden_layers(), layers)
        settings = load_engine_settings()
        counter = self._open_counter(shape, ranks, settings)
        if ranks.counts:
            self._tap = vllm_router.RouterTap(counter, shape, ranks)
            self._tap.bind(model, layers)
        placement = vllm_placement.placement_by_rule(shape, ranks.ep_size, layers)
        self._open_recorder(shape, ranks, counter, placement, settings)
        self._steps = vllm_steps.StepWatch(runner, ranks, self._recorder, self.attempt)
        self._watch_eplb(shape, ranks, model)
        self._steps.timing = vllm_timing.time_passes(self._recorder, worker, shape, layers, settings)
        self._steps.watch()
        if isinstance(counter, TorchExpertCounter) and hasattr(runner, "capture_model"):
            pause_reads_in(runner, "capture_model", counter)
        self._when_warm = functools.partial(self._report_the_rest, ranks, shape, model, layers, settings)

    def _open_counter(self, shape: ModelShape, ranks: vllm_ranks.Ranks, settings: Settings) -> ExpertCounter:
        if not ranks.counts:
            return NumpyExpertCounter(shape.num_moe_layers, shape.num_experts)
        max_tokens = self._worker.scheduler_config.max_num_batched_tokens
        size = (shape.num_moe_layers, shape.num_experts, max_tokens, self._worker.device)
        if ranks.ep_size > 1 and settings.rank_traffic:
            return TorchRankIoCounter(*size, ep_size=ranks.ep_size)
        return TorchExpertCounter(*size)

    def _open_recorder(
        self,
        shape: ModelShape,
        ranks: vllm_ranks.Ranks,
        counter: ExpertCounter,
        placement: Placement,
        settings: Settings,
    ) -> None:
        import vllm  # noqa: PLC0415 - engines are imported where they are there

        identity = EngineIdentity(
            service=shape.name,
            shape=shape,
            grid=ranks.grid(settings.ep_group),
            engine="vllm",
            engine_version=vllm.__version__,
            role=vllm_ranks.role_of(self._worker.vllm_config),
        )
        self._recorder = self._make_recorder(identity, counter, placement=placement, settings=settings)

    def _watch_eplb(self, shape: ModelShape, ranks: vllm_ranks.Ranks, model: Any) -> None:
        state = vllm_placement.find_eplb_state(self._worker.model_runner, model)
        if state is not None and self._steps is not None:
            publish = self._recorder.set_placement
            self._steps.eplb = vllm_placement.EplbWatch(state, shape, ranks.ep_size, publish)

    def _before_warm_up(self) -> None:
        if self._tap is not None:
            self._tap.bind_again()

    def _after_warm_up(self) -> None:
        if self._steps is None:
            return
        self._steps.is_warm = True
        # Rows that no step announces are nobody's load.
        self._recorder.begin_step()
        self._when_warm()
        if isinstance(self._recorder, LiveRecorder):
            self._recorder.start()

    def _report_the_rest(
        self, ranks: vllm_ranks.Ranks, shape: ModelShape, model: Any, layers: list[Any], settings: Settings
    ) -> None:
        """What may be missing: whatever of it fails, the expert load goes on."""
        worker, recorder = self._worker, self._recorder
        eplb = vllm_placement.find_eplb_state(worker.model_runner, model)
        _try("memory", vllm_memory.report_memory, recorder, worker, model, layers, eplb)
        vllm_policy.say_where_unused(settings.placement_file, eplb)
        if ranks.exchanges and settings.rank_traffic:
            _try("bytes by peer rank", self._watch_traffic, ranks, shape, settings)
        if worker.device.type == "cuda" and settings.gpu_metrics:
            watch_gpu(recorder, worker.device.index)

    def _watch_traffic(self, ranks: vllm_ranks.Ranks, shape: ModelShape, settings: Settings) -> None:
        traffic = vllm_traffic.Traffic(
            self._recorder, shape, ranks.ep_size, by_layer=settings.traffic_by_layer
        )
        if self._steps is not None and vllm_traffic.watch_exchange(traffic, self._worker.vllm_config):
            self._steps.traffic = traffic
            self._recorder.poll(traffic.report)

    def _end(self) -> None:
        try:
            if self._tap is not None or self._steps is not None:
                # What was launched must be computed before the last read.
                self._worker.synchronize_device()
            if self._steps is not None:
                self._steps.drain()
            self._recorder.close(_seconds_to_end())
        except Exception:
            logger.exception("moescope: the last window is lost with this worker")

    def _give_up(self) -> None:
        # The recorder stays: what was counted until now is reported.
        self._has_given_up = True
        try:
            if self._tap is not None:
                self._tap.unbind()
            if self._steps is not None:
                self._steps.stop()
            # Captured graphs go on counting; into a row that is not load.
            self._recorder.begin_step()
        except Exception:
            logger.debug("moescope: could not take the hook back", exc_info=True)


def _keep_compiled_code_apart(vllm_config: Any) -> None:
    """Let code that torch.compile traced without the hook never be loaded with it, nor the other way round.

    On every other platform routing happens inside an operator that is not traced.
    """
    from vllm.platforms import current_platform  # noqa: PLC0415 - engines are imported where they are there

    if current_platform.is_cpu() and isinstance(vllm_config.additional_config, dict):
        vllm_config.additional_config["moescope"] = importlib.metadata.version("moescope")


def _seconds_to_end() -> float:
    """Half of what vLLM grants a worker before it kills it: the other half is the worker's own."""
    from vllm import envs  # noqa: PLC0415 - engines are imported where they are there

    return float(envs.VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS) / 2


def _try(what: str, action: Callable[..., None], *args: Any) -> None:
    try:
        action(*args)
    except Exception:
        logger.exception("moescope: %s cannot be reported; all else is", what)
