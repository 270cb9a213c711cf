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

from moescope.collector.expert_load import ExpertCounter, NumpyExpertCounter, Row, Segment
from moescope.collector.expert_load_torch import TorchExpertCounter
from moescope.collector.hooks import vllm_batch, vllm_layers, vllm_placement, vllm_ranks, vllm_router
from moescope.collector.live_recorder import LiveRecorder
from moescope.collector.rank_io_torch import TorchRankIoCounter
from moescope.collector.recorder import NullRecorder
from moescope.schemas.errors import EngineNotSupportedError, MoescopeError
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
        self._eplb: vllm_placement.EplbWatch | None = None
        self._ranks: vllm_ranks.Ranks | None = None
        self._is_warm = False
        self._has_given_up = False

    @property
    def recorder(self) -> LiveRecorder | NullRecorder:
        """Where the worker's steps go; a null recorder until its model is loaded, or for good."""
        return self._recorder

    def watch(self) -> None:
        """Wrap the worker's own methods."""
        _keep_compiled_code_apart(self._worker.vllm_config)
        _wrap(self._worker, "load_model", after=lambda *_: self.attempt(self._attach))
        _wrap(
            self._worker,
            "compile_or_warm_up_model",
            before=lambda *_, **__: self.attempt(self._before_warm_up),
            after=lambda *_: self.attempt(self._after_warm_up),
        )
        _wrap(self._worker, "shutdown", before=lambda *_, **__: self._end())

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
        self._ranks = ranks
        settings = load_engine_settings()
        counter = self._open_counter(shape, ranks, settings)
        if ranks.counts:
            _check_runner(runner, ranks)
            self._tap = vllm_router.RouterTap(counter, shape, ranks)
            self._tap.bind(model, layers)
        placement = vllm_placement.placement_by_rule(shape, ranks.ep_size, layers)
        self._open_recorder(shape, ranks, counter, placement, settings)
        self._watch_eplb(shape, ranks, model)
        if ranks.counts:
            self._watch_steps(counter)

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
        if state is not None:
            self._eplb = vllm_placement.EplbWatch(state, shape, ranks.ep_size, self._recorder.set_placement)

    def _watch_steps(self, counter: ExpertCounter) -> None:
        runner = self._worker.model_runner
        _wrap(runner, "_dummy_run", before=lambda *a, **k: self.attempt(self._begin_dummy, a, k))
        if hasattr(runner, "prepare_inputs"):
            _wrap(runner, "prepare_inputs", after=lambda batch, *_: self.attempt(self._begin_v2, batch))
        else:
            _wrap(runner, "_prepare_inputs", after=lambda _, *a: self.attempt(self._begin_v1, *a))
        if isinstance(counter, TorchExpertCounter) and hasattr(runner, "capture_model"):
            _pause_reads_in(runner, "capture_model", counter)

    def _before_warm_up(self) -> None:
        if self._tap is not None:
            self._tap.bind_again()

    def _after_warm_up(self) -> None:
        self._is_warm = True
        # Rows that no step announces are nobody's load.
        self._recorder.begin_step()
        if isinstance(self._recorder, LiveRecorder):
            self._recorder.start()

    def _begin_dummy(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        num_tokens = int(args[0] if args else kwargs["num_tokens"])
        self._recorder.begin_step((Row.DUMMY if self._is_warm else Row.WARMUP, num_tokens))

    def _begin_v1(self, _scheduler_output: Any, num_scheduled_tokens: Any) -> None:
        self._begin(vllm_batch.segments_of_v1(self._worker.model_runner, num_scheduled_tokens))

    def _begin_v2(self, batch: Any) -> None:
        segments = vllm_batch.segments_of_v2(batch)
        ranks = self._ranks
        if ranks is not None and ranks.is_sequence_parallel:
            segments = vllm_batch.shard_of(
                segments, batch.num_tokens_after_padding, ranks.tp_rank, ranks.tp_size
            )
        self._begin(segments)

    def _begin(self, segments: tuple[Segment, ...]) -> None:
        if not self._is_warm:
            # Model Runner V2 warms its kernels up with requests that look real.
            segments = tuple((Row.WARMUP, tokens) for _, tokens in segments)
        self._recorder.begin_step(*segments)
        if self._eplb is not None:
            self._eplb.look()

    def _end(self) -> None:
        try:
            if self._tap is not None:
                # What was launched must be computed before the last read.
                self._worker.synchronize_device()
            self._recorder.close(_seconds_to_end())
        except Exception:
            logger.exception("moescope: the last window is lost with this worker")

    def _give_up(self) -> None:
        # The recorder stays: what was counted until now is reported.
        self._has_given_up = True
        try:
            if self._tap is not None:
                self._tap.unbind()
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


def _check_runner(runner: Any, ranks: vllm_ranks.Ranks) -> None:
    is_v2 = hasattr(runner, "prepare_inputs")
    if not hasattr(runner, "_dummy_run") or not (is_v2 or hasattr(runner, "_prepare_inputs")):
        raise EngineNotSupportedError(
            f"the model runner {type(runner).__name__} does not say what the rows of a step are; "
            "moescope knows vLLM's Model Runners V1 and V2"
        )
    if ranks.is_sequence_parallel and not is_v2:
        raise EngineNotSupportedError(
            "Model Runner V1 splits a batch over sequence-parallel ranks after it is prepared; "
            "serve with VLLM_USE_V2_MODEL_RUNNER=1"
        )


def _wrap(
    target: Any,
    name: str,
    *,
    before: Callable[..., None] | None = None,
    after: Callable[..., None] | None = None,
) -> None:
    """Call ``before(*args, **kwargs)`` and ``after(result, *args)`` around a method of this one object."""
    original = getattr(target, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(*args, **kwargs)
        result = original(*args, **kwargs)
        if after is not None:
            after(result, *args)
        return result

    setattr(target, name, wrapped)


def _pause_reads_in(target: Any, name: str, counter: TorchExpertCounter) -> None:
    original = getattr(target, name)

    @functools.wraps(original)
    def paused(*args: Any, **kwargs: Any) -> Any:
        with counter.reads_paused():
            return original(*args, **kwargs)

    setattr(target, name, paused)
