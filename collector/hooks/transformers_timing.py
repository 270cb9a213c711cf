"""How long the forward passes of a Transformers model take, and their experts.

Every pass on the CPU is a step. Of a random share of them the experts are timed too. Where Transformers
computes them one by one (``experts_implementation="eager"``) each expert has its own time; else the grouped
kernel of a layer has one. On an accelerator nothing is timed: its kernels end long after the calls do, and
waiting for them would slow the model down.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from moescope.collector.expert_load import Row, Segment
from moescope.collector.recorder import Meter
from moescope.schemas import metrics
from moescope.schemas.attributes import PHASE, SOURCE, DurationSource, Phase
from moescope.schemas.records import IntArray
from moescope.schemas.topology import ModelShape

logger = logging.getLogger("moescope")

_PHASE_OF_ROW: Final = {Row.PREFILL: Phase.PREFILL, Row.DECODE: Phase.DECODE}
_NS: Final = 1_000_000_000


class ForwardTiming:
    """Times the forward passes of one model, on the thread that runs it.

    Args:
        meter: where the times go.
        shape: the model.
        share: part of the passes whose experts are timed; chosen at random, since a fixed stride would meet
            the same kind of batch again and again.
        choose: a number in [0, 1) per pass.
        clock_ns: monotonic, nanoseconds.
    """

    def __init__(
        self,
        meter: Meter,
        shape: ModelShape,
        share: float,
        choose: Callable[[], float] = random.random,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._meter = meter
        self._shape = shape
        self._share = share
        self._choose = choose
        self._clock_ns = clock_ns
        self._handles: list[Any] = []
        self._phase: Phase | None = None
        self._tokens = 0
        self._started_ns = 0
        self._is_timed = False
        self._watch: _LoopWatch | None = None
        self._thread = 0
        self._ns_per_layer: IntArray = np.zeros(shape.num_layers, dtype=np.int64)
        self._ns_per_layer_expert: IntArray = np.zeros(
            (shape.num_moe_layers, shape.num_experts), dtype=np.int64
        )

    def attach(self, experts: Sequence[torch.nn.Module]) -> list[Any]:
        """Hook the modules that compute the experts, in layer order; returns the handles."""
        for ordinal, module in enumerate(experts):
            self._handles.append(module.register_forward_pre_hook(self._begin_experts))
            self._handles.append(module.register_forward_hook(self._end_experts(ordinal), always_call=True))
        return self._handles

    def begin(self, segments: Sequence[Segment]) -> None:
        """A forward pass begins; its rows are of one phase, or of none."""
        rows = {row: sum(n for kind, n in segments if kind is row) for row in _PHASE_OF_ROW}
        row = max(rows, key=rows.__getitem__)
        self._tokens = rows[row]
        self._phase = _PHASE_OF_ROW[row] if self._tokens else None
        self._is_timed = self._phase is not None and self._choose() < self._share
        self._thread = threading.get_ident()
        self._started_ns = self._clock_ns()

    def end(self) -> None:
        """The forward pass is over."""
        if self._phase is None:
            return
        attributes = {PHASE: self._phase.value}
        self._meter.observe(metrics.STEP_DURATION, (self._clock_ns() - self._started_ns) / _NS, attributes)
        self._meter.observe(metrics.STEP_TOKENS, self._tokens, attributes)
        if self._is_timed:
            self._report_experts(self._phase)
        self._phase, self._is_timed = None, False

    def _report_experts(self, phase: Phase) -> None:
        # What was timed stands for all passes: sums are scaled up by the share.
        if self._ns_per_layer_expert.any():
            self._meter.add_indexed(
                metrics.EXPERT_DURATION,
                np.rint(self._ns_per_layer_expert / self._share).astype(np.int64),
                {PHASE: phase.value, SOURCE: DurationSource.MEASURED.value},
                self._shape.layer_index,
            )
            self._ns_per_layer_expert[:] = 0
        if self._ns_per_layer.any():
            self._meter.add_indexed(
                metrics.EXPERT_GROUP_DURATION,
                np.rint(self._ns_per_layer / self._share).astype(np.int64),
                {PHASE: phase.value},
            )
            self._ns_per_layer[:] = 0

    def _begin_experts(self, module: Any, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling() or not self._is_timed:
            return
        if threading.get_ident() != self._thread:  # a pass of another thread, beside the one that is timed
            return
        try:
            self._watch = _LoopWatch(self._clock_ns, _selected(args, self._shape.num_experts))
            if getattr(module.config, "_experts_implementation", None) in {None, "eager"}:
                self._watch.__enter__()
        except Exception:
            self._give_up()

    def _end_experts(self, ordinal: int) -> Callable[[Any, Any, Any], None]:
        layer = self._shape.moe_layers[ordinal]

        def end_experts(_module: Any, _args: Any, _output: Any) -> None:
            if torch.compiler.is_compiling() or self._watch is None:
                return
            if threading.get_ident() != self._thread:
                return
            watch, self._watch = self._watch, None
            try:
                elapsed_ns = watch.stop()
                if watch.is_one_by_one:
                    self._ns_per_layer_expert[ordinal, watch.experts] += np.asarray(watch.durations_ns)
                else:
                    self._ns_per_layer[layer] += elapsed_ns
            except Exception:
                self._give_up()

        return end_experts

    def _give_up(self) -> None:
        """Stop timing experts: the hook may fail, the model may not."""
        logger.error("moescope: experts are not timed any more; the model goes on", exc_info=True)  # noqa: LOG014 - called from handlers
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.stop()
        for handle in self._handles:
            handle.remove()


class _LoopWatch(TorchFunctionMode):  # type: ignore[misc]  # torch ships it untyped
    """Sees the experts of one layer go by, where they are computed in a loop.

    The eager loop of Transformers begins an expert by looking up its rows (``where``) and ends it by adding
    its output (``index_add_``), in the order of the experts' ids.
    """

    def __init__(self, clock_ns: Callable[[], int], experts: IntArray) -> None:
        super().__init__()
        self.experts = experts
        self.durations_ns: list[int] = []
        self._clock_ns = clock_ns
        self._is_entered = False
        self._expert_began_ns = 0
        self._began_ns = clock_ns()

    @property
    def is_one_by_one(self) -> bool:
        """Whether as many experts went by as were chosen."""
        return self._is_entered and len(self.durations_ns) == len(self.experts)

    def __enter__(self) -> Self:
        """Look at every torch function that this thread calls from now on."""
        super().__enter__()
        self._is_entered = True
        return self

    def stop(self) -> int:
        """Look no longer; returns nanoseconds since the layer's experts began."""
        elapsed_ns = self._clock_ns() - self._began_ns
        if self._is_entered:
            self.__exit__(None, None, None)
        return elapsed_ns

    def __torch_function__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call ``func`` as it would be called without us, and look at the clock around the two."""
        if func is torch.where and len(args) == 1:
            self._expert_began_ns = self._clock_ns()
        output = func(*args, **(kwargs or {}))
        if func is torch.Tensor.index_add_:
            self.durations_ns.append(self._clock_ns() - self._expert_began_ns)
        return output


def _selected(args: tuple[Any, ...], num_experts: int) -> IntArray:
    """The experts that any row chose, in order: the second argument is ids ``[tokens, top_k]``."""
    ids = np.unique(args[1].cpu().numpy()).astype(np.int64)
    return ids[(ids >= 0) & (ids < num_experts)]
