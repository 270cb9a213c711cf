# mypy: disable-error-code="import-not-found"
"""One SGLang rank, followed from its model's loading to its end.

SGLang makes its recorder first, then loads the model (now the shape is known and the counters are made), runs
kernels to warm up and captures graphs (counted as warm-up), serves (the first batch with requests starts the
reporting) and ends (flush). Whatever fails is logged, and the rank serves on without telemetry.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from moescope.collector.expert_load import ExpertCounter, NumpyExpertCounter, Row
from moescope.collector.expert_load_torch import TorchExpertCounter
from moescope.collector.hooks import (
    sglang_batch,
    sglang_counter,
    sglang_memory,
    sglang_placement,
    sglang_ranks,
    sglang_shape,
    sglang_version,
    sglang_waits,
)
from moescope.collector.live_recorder import LiveRecorder
from moescope.collector.recorder import NullRecorder
from moescope.schemas import metrics
from moescope.schemas.attributes import PHASE, Phase
from moescope.schemas.errors import MoescopeError
from moescope.schemas.identity import EngineIdentity
from moescope.schemas.settings import Settings, load_engine_settings
from moescope.schemas.topology import ModelShape, Placement

logger = logging.getLogger("moescope")

_PHASES = {Row.PREFILL: Phase.PREFILL, Row.DECODE: Phase.DECODE}


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


class RankWatch:
    """Listens to one rank's recorder; see :class:`~moescope.collector.hooks.sglang_recorder.PassListener`."""

    def __init__(self, make_recorder: MakeRecorder) -> None:
        self._make_recorder = make_recorder
        self._metadata: Any = None
        self._recorder: LiveRecorder | NullRecorder = NullRecorder()
        self._counter: TorchExpertCounter | None = None
        self._ranks: sglang_ranks.Ranks | None = None
        self._ordinal_of_layer: dict[int | None, int] = {}
        self._logical_ids: sglang_placement.LogicalIds | None = None
        self._placement: sglang_placement.PlacementWatch | None = None
        self._shape: ModelShape | None = None
        self._max_rows = 0
        self._layer: int | None = None
        self._mutes = 0
        self._is_in_pass = False
        self._has_started = False
        self._has_selected = False
        self._has_given_up = False
        self._pools = sglang_memory.Pools()

    @property
    def recorder(self) -> LiveRecorder | NullRecorder:
        """Where the rank's passes go; a null recorder until its model is loaded, or for good."""
        return self._recorder

    def use_metadata(self, metadata: Any) -> None:
        """Take SGLang's expert location metadata, or None where it has none for the model."""
        self._metadata = metadata
        if (
            self._shape is not None
        ):  # the group was resized: what graphs have captured keeps the old map alive
            self._attempt(self._follow_placement)

    def attach(self, runner: Any) -> None:
        """The model of this model runner is loaded."""
        if getattr(runner, "is_draft_worker", False):
            self._attempt(self._mute_draft, runner)
        elif self._shape is None:
            self._attempt(self._attach, runner)

    def take_stats(self, stats: Any) -> None:
        """The scheduler in this process logs its state: SGLang's ``SchedulerStats``."""
        self._pools.take(stats)

    def enter_layer(self, layer: int | None) -> None:
        """See :meth:`PassListener.enter_layer`."""
        self._layer = layer

    def mute(self) -> None:
        """See :meth:`PassListener.mute`."""
        self._mutes += 1

    def unmute(self) -> None:
        """See :meth:`PassListener.unmute`."""
        self._mutes -= 1

    def begin_pass(self, batch: Any) -> None:
        """See :meth:`PassListener.begin_pass`."""
        if self._shape is not None and not self._mutes:
            self._attempt(self._begin, batch)

    def end_pass(self, batch: Any) -> None:  # noqa: ARG002 - the listener's signature
        """See :meth:`PassListener.end_pass`."""
        if not self._mutes:
            self._is_in_pass = False

    def select(self, topk_ids: Any) -> None:
        """See :meth:`PassListener.select`."""
        ordinal = self._ordinal_of_layer.get(self._layer)
        if ordinal is not None and not self._mutes:
            self._attempt(self._count, ordinal, topk_ids)

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Do not listen meanwhile."""
        self.mute()
        try:
            yield
        finally:
            self.unmute()

    def close(self) -> None:
        """Flush; for an engine that ends within its process."""
        self._recorder.close()

    def _attempt(self, action: Callable[..., None], *args: Any) -> None:
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

    def _attach(self, runner: Any) -> None:
        config = runner.model_config.hf_text_config
        if not sglang_shape.has_experts(config):
            logger.info("moescope: the model has no routed experts; there is nothing to count")
            return
        ranks = sglang_ranks.find_ranks()
        if not ranks.reports:
            return
        settings = load_engine_settings()
        experts = sglang_shape.find_experts(runner.model)
        shape = sglang_shape.shape_of(_model_name(), config, [module.layer_id for module in experts])
        counter = self._open_counter(shape, ranks, settings, runner)
        identity = EngineIdentity(
            service=shape.name,
            shape=shape,
            grid=ranks.grid(settings.ep_group),
            engine="sglang",
            engine_version=sglang_version.installed_version(),
            role=sglang_ranks.role_of_this_process(),
        )
        self._recorder = self._make_recorder(identity, counter, settings=settings)
        self._ranks, self._shape = ranks, shape
        self._follow_placement()
        self._pools = sglang_memory.Pools(runner, experts, self._redundant_share())
        self._recorder.poll(lambda: self._pools.report(self._recorder))
        if isinstance(counter, TorchExpertCounter):
            self._listen_from_now_on(runner, counter, ranks, shape)

    def _listen_from_now_on(
        self, runner: Any, counter: TorchExpertCounter, ranks: sglang_ranks.Ranks, shape: ModelShape
    ) -> None:
        self._counter = counter
        self._ordinal_of_layer = {layer: ordinal for ordinal, layer in enumerate(shape.moe_layers)}
        self._watch_captures(runner, counter)
        self._recorder.poll(self._warn_if_nothing_is_selected)
        waits = sglang_waits.watch_low_latency_waits(ranks.ep_size, runner.device)
        if waits is not None:
            self._recorder.poll(lambda: waits.report(self._recorder))

    def _open_counter(
        self, shape: ModelShape, ranks: sglang_ranks.Ranks, settings: Settings, runner: Any
    ) -> ExpertCounter:
        if not ranks.counts:
            return NumpyExpertCounter(shape.num_moe_layers, shape.num_experts)
        self._max_rows = sglang_ranks.most_rows_of_a_pass(int(runner.model_config.context_len))
        counter = sglang_counter.open_counter(
            shape.num_moe_layers,
            shape.num_experts,
            self._max_rows,
            runner.device,
            ep_size=ranks.ep_size,
            shard=ranks.shard,
            by_peer=settings.rank_traffic and ranks.ep_size > 1,
        )
        counter.set_layout(((Row.WARMUP, self._max_rows),))
        return counter

    def _follow_placement(self) -> None:
        metadata = self._metadata
        if metadata is None or self._ranks is None or self._shape is None:
            return
        self._placement = sglang_placement.PlacementWatch(
            metadata, self._shape, self._ranks.ep_size, self._recorder.set_placement
        )
        self._placement.look()
        if sglang_placement.hands_out_physical_ids():
            self._logical_ids = sglang_placement.LogicalIds(metadata.physical_to_logical_map)

    def _redundant_share(self) -> float:
        if self._metadata is None:
            return 0.0
        return 1 - float(self._metadata.num_logical_experts) / float(self._metadata.num_physical_experts)

    def _mute_draft(self, runner: Any) -> None:
        """Keep a draft model's passes and layers apart: they carry the target's layer indices."""
        for target in (runner, runner.model):
            target.forward = self._muting(target.forward)

    def _muting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            with self.muted():
                return original(*args, **kwargs)

        return forward

    def _watch_captures(self, runner: Any, counter: TorchExpertCounter) -> None:
        """Graphs may be captured anew while the reporter's thread reads."""
        original = getattr(runner, "recapture_decode_cuda_graph", None)
        if original is None:
            return

        @functools.wraps(original)
        def recapture(*args: Any, **kwargs: Any) -> Any:
            with counter.reads_paused():
                return original(*args, **kwargs)

        runner.recapture_decode_cuda_graph = recapture

    def _begin(self, batch: Any) -> None:
        self._is_in_pass = True
        counter = self._counter
        if sglang_batch.is_synthetic(batch):
            if counter is not None:
                counter.set_layout(((Row.WARMUP, self._max_rows),))
            return
        if not self._has_started:
            self._has_started = True
            if isinstance(self._recorder, LiveRecorder):
                self._recorder.start()
        if self._placement is not None:
            self._placement.look()
        if counter is not None:
            self._lay_out(batch, counter)
        sglang_memory.count_state_copies(self._recorder, batch)

    def _lay_out(self, batch: Any, counter: TorchExpertCounter) -> None:
        segments = sglang_batch.segments_of(batch)
        if not segments:
            # Nobody's rows, about as many as the other ranks have: the device counts them.
            counter.set_layout(((Row.DUMMY, self._idle_rows(batch)),))
        elif batch.forward_mode.is_split_prefill() and batch.split_index:
            counter.set_layout(segments)  # the same rows as in its first layers
        else:
            self._recorder.begin_step(*segments)
            for row, phase in _PHASES.items():
                tokens = sum(n for kind, n in segments if kind is row)
                if tokens:
                    self._recorder.observe(metrics.STEP_TOKENS, tokens, {PHASE: phase.value})

    def _idle_rows(self, batch: Any) -> int:
        """More rows than an idle pass has, and seldom another number than before."""
        others = max(batch.global_num_tokens_cpu or (0,))
        return min(2 << max(int(others), 512).bit_length(), self._max_rows)

    def _count(self, ordinal: int, topk_ids: Any) -> None:
        assert self._counter is not None  # noqa: S101 - for the type checker: layers are known once it is there
        assert self._ranks is not None  # noqa: S101 - same
        self._has_selected = True
        if not self._is_in_pass and not _is_captured(topk_ids):
            self._counter.set_layout(((Row.WARMUP, self._max_rows),))
        ids = self._ranks.own_rows(topk_ids, _gathered_rows() if self._ranks.is_gathered else None)
        if ids is None:
            return
        if self._logical_ids is not None:
            assert self._layer is not None  # noqa: S101 - for the type checker: it has an ordinal
            ids = self._logical_ids.translate(self._layer, ids)
        self._counter.add(ordinal, ids)

    def _warn_if_nothing_is_selected(self) -> None:
        if self._has_started and not self._has_selected:
            self._has_selected = True
            logger.warning(
                "moescope: no router says what it selects, so no expert load is counted: the MoE kernel "
                "selects by itself. Serve with another --moe-runner-backend to count experts"
            )

    def _give_up(self) -> None:
        # The recorder stays: what was counted until now is reported.
        self._has_given_up = True
        self._ordinal_of_layer = {}
        if self._counter is not None:
            try:
                # Captured graphs go on counting; into a row that is not load.
                self._counter.set_layout(())
            except Exception:
                logger.debug("moescope: could not take the hook back", exc_info=True)


def _is_captured(topk_ids: Any) -> bool:
    return bool(
        torch.compiler.is_compiling() or (topk_ids.is_cuda and torch.cuda.is_current_stream_capturing())
    )


def _gathered_rows() -> Any:
    from sglang.srt.layers.dp_attention import get_dp_global_num_tokens  # noqa: PLC0415 - lazy

    return get_dp_global_num_tokens()


def _model_name() -> str:
    from sglang.srt.runtime_context import get_serving  # noqa: PLC0415 - engines are imported where they are

    return sglang_shape.name_of(str(get_serving().served_model_name))
