"""The steps of one vLLM model runner: what the rows of each forward pass are, said to all who need it.

The expert load needs no clock and no map of the experts: what fails there is switched off by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from moescope.collector.expert_load import Row, Segment
from moescope.collector.forward_pass import NO_LOAD, ForwardPass, pass_of
from moescope.collector.hooks import vllm_batch, vllm_placement, vllm_traffic
from moescope.collector.hooks.vllm_ranks import Ranks
from moescope.collector.hooks.vllm_wrap import wrap
from moescope.collector.pass_timing import PassTiming
from moescope.collector.recorder import Recorder
from moescope.schemas.errors import EngineNotSupportedError

logger = logging.getLogger("moescope")

Attempt: TypeAlias = Callable[..., None]
_T = TypeVar("_T")


class StepWatch:
    """Follows the passes of one model runner.

    Args:
        runner: vLLM's model runner, V1 or V2.
        ranks: this worker's place.
        recorder: told what the rows are, if this rank counts.
        attempt: calls ``attempt(action, *args)``; nothing of it may raise into the step.

    Raises:
        EngineNotSupportedError: the runner does not say what the rows of a step are.
    """

    def __init__(self, runner: Any, ranks: Ranks, recorder: Recorder, attempt: Attempt) -> None:
        _check_runner(runner, ranks)
        self._runner = runner
        self._ranks = ranks
        self._recorder = recorder
        self._attempt = attempt
        self._now: ForwardPass = NO_LOAD
        self._start: Any = None
        self.is_warm = False
        self.timing: PassTiming | None = None
        self.traffic: vllm_traffic.Traffic | None = None
        self.eplb: vllm_placement.EplbWatch | None = None

    def watch(self) -> None:
        """Wrap the runner's own methods."""
        runner, attempt = self._runner, self._attempt
        wrap(runner, "_dummy_run", before=lambda *a, **k: attempt(self._begin_dummy, a, k))
        if hasattr(runner, "prepare_inputs"):
            wrap(runner, "prepare_inputs", after=lambda batch, *_: attempt(self._begin_v2, batch))
        else:
            wrap(runner, "_prepare_inputs", after=lambda _, *a: attempt(self._begin_v1, *a))
        if hasattr(runner, "execute_model"):
            wrap(
                runner,
                "execute_model",
                before=lambda *_, **__: attempt(self._start_time),
                after=lambda *_: attempt(self._end_time),
            )

    def stop(self) -> None:
        """Leave nothing on the engine's kernels; the wrapped methods pass everything on."""
        if self.timing is not None:
            self.timing.stop()

    def drain(self) -> None:
        """Report the steps that the device has finished: nothing else may follow that would."""
        self._try_timing(lambda timing: timing.report())

    def _begin_dummy(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        num_tokens = int(args[0] if args else kwargs["num_tokens"])
        self._say((Row.DUMMY if self.is_warm else Row.WARMUP, num_tokens))

    def _begin_v1(self, _scheduler_output: Any, num_scheduled_tokens: Any) -> None:
        self._begin(vllm_batch.segments_of_v1(self._runner, num_scheduled_tokens))

    def _begin_v2(self, batch: Any) -> None:
        segments = vllm_batch.segments_of_v2(batch)
        ranks = self._ranks
        if ranks.is_sequence_parallel:
            segments = vllm_batch.shard_of(
                segments, batch.num_tokens_after_padding, ranks.tp_rank, ranks.tp_size
            )
        self._begin(segments)

    def _begin(self, segments: tuple[Segment, ...]) -> None:
        if not self.is_warm:
            # Model Runner V2 warms its kernels up with requests that look real.
            segments = tuple((Row.WARMUP, tokens) for _, tokens in segments)
        self._say(*segments)
        if self._now.load_rows:
            self._try_timing(lambda timing: timing.look_into())
        self._look_at_eplb()

    def _say(self, *segments: Segment) -> None:
        self._now = pass_of(segments)
        if self._ranks.counts:
            self._recorder.begin_step(*segments)
        if self.traffic is not None:
            self.traffic.begin(self._now)

    def _start_time(self) -> None:
        self._now, self._start = NO_LOAD, None
        if self.is_warm:
            self._start = self._try_timing(lambda timing: timing.begin())

    def _end_time(self) -> None:
        start, self._start = self._start, None
        if start is not None:
            self._try_timing(lambda timing: timing.end(start, self._now))

    def _try_timing(self, action: Callable[[PassTiming], _T]) -> _T | None:
        timing = self.timing
        if timing is None:
            return None
        try:
            return action(timing)
        except Exception:
            logger.exception("moescope: steps are not timed any more; expert load is counted on")
            self.timing = None
            _try_to_stop(timing)
            return None

    def _look_at_eplb(self) -> None:
        if self.eplb is None:
            return
        try:
            self.eplb.look()
        except Exception:
            logger.exception("moescope: experts are not followed any more where EPLB moves them")
            self.eplb = None


def _try_to_stop(timing: PassTiming) -> None:
    try:
        timing.stop()
    except Exception:
        logger.debug("moescope: could not take the timing off the kernels", exc_info=True)


def _check_runner(runner: Any, ranks: Ranks) -> None:
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
