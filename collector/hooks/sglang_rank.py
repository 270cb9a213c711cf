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
from typing import Any

from moescope.collector.expert_load import Row
from moescope.collector.forward_pass import NO_LOAD, ForwardPass, pass_of
from moescope.collector.hooks import sglang_batch, sglang_graphs, sglang_memory, sglang_placement
from moescope.collector.hooks.sglang_setup import MakeRecorder, RankSetup, set_up
from moescope.collector.live_recorder import LiveRecorder
from moescope.collector.optional_part import OptionalPart
from moescope.collector.pass_timing import PassTiming
from moescope.schemas.errors import MoescopeError

logger = logging.getLogger("moescope")


class RankWatch:
    """Listens to one rank's recorder; see :class:`~moescope.collector.hooks.sglang_recorder.PassListener`."""

    def __init__(self, make_recorder: MakeRecorder) -> None:
        self._make_recorder = make_recorder
        self._metadata: Any = None
        self._setup: RankSetup | None = None
        self._ordinal_of_layer: dict[int | None, int] = {}
        # The last one counts; graphs that were captured with another still read its map.
        self._logical_ids: list[sglang_placement.LogicalIds] = []
        self._placement: sglang_placement.PlacementWatch | None = None
        self._start: Any = None
        self._now: ForwardPass = NO_LOAD
        self._layer: int | None = None
        self._mutes = 0
        self._is_in_pass = False
        self._has_started = False
        self._has_selected = False
        self._has_given_up = False
        self._timing = OptionalPart("passes are not timed any more", self._stop_timing)
        self._following = OptionalPart("the placement is not followed any more")
        self._copies = OptionalPart("copies of KDA state are not counted any more")

    def use_metadata(self, metadata: Any) -> None:
        """Take SGLang's expert location metadata, or None where it has none for the model."""
        self._metadata = metadata
        if (
            self._setup is not None
        ):  # the group was resized: what graphs have captured keeps the old map alive
            self._attempt(self._follow_placement, self._setup)

    def attach(self, runner: Any) -> None:
        """The model of this model runner is loaded."""
        self._attempt(sglang_graphs.pause_reads_during_captures, runner, self._reads_paused)
        if getattr(runner, "is_draft_worker", False):
            self._attempt(self._mute_draft, runner)
        elif self._setup is None:
            self._attempt(self._attach, runner)

    def take_stats(self, stats: Any) -> None:
        """The scheduler in this process logs its state: SGLang's ``SchedulerStats``, None after the last."""
        if self._setup is not None:
            self._setup.pools.take(stats)

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
        if self._setup is not None and not self._mutes:
            self._attempt(self._begin, self._setup, batch)

    def end_pass(self) -> None:
        """See :meth:`PassListener.end_pass`."""
        if self._is_in_pass and not self._mutes:
            self._is_in_pass = False
            self._attempt(self._end)

    def select(self, topk_ids: Any) -> None:
        """See :meth:`PassListener.select`."""
        ordinal = self._ordinal_of_layer.get(self._layer)
        if ordinal is not None and not self._mutes:
            self._attempt(self._count, self._layer, ordinal, topk_ids)

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
        setup = set_up(runner, self._metadata, self._make_recorder)
        if setup is None:
            return
        self._setup = setup
        self._follow_placement(setup)
        if setup.counter is not None:
            setup.counter.set_layout(((Row.WARMUP, setup.max_rows),))
            self._ordinal_of_layer = {layer: i for i, layer in enumerate(setup.shape.moe_layers)}
            setup.recorder.poll(self._warn_if_nothing_is_selected)

    @contextmanager
    def _reads_paused(self) -> Iterator[None]:
        if self._setup is None:
            yield
            return
        with self._setup.reads_paused():
            yield

    def _follow_placement(self, setup: RankSetup) -> None:
        if self._metadata is None:
            return
        self._placement = sglang_placement.PlacementWatch(
            self._metadata, setup.shape, setup.ranks.ep_size, setup.recorder.set_placement
        )
        self._placement.look()
        if sglang_placement.hands_out_physical_ids():
            self._logical_ids.append(sglang_placement.LogicalIds(self._metadata.physical_to_logical_map))

    def _mute_draft(self, runner: Any) -> None:
        """Keep a draft model's passes and layers apart: they carry the target's layer indices."""
        for target in (runner, runner.model):
            target.forward = self._muting(target.forward)

    def _muting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            self.mute()
            try:
                return original(*args, **kwargs)
            finally:
                self.unmute()

        return forward

    def _begin(self, setup: RankSetup, batch: Any) -> None:
        self._is_in_pass = True
        self._now = NO_LOAD
        if sglang_batch.is_synthetic(batch):
            if setup.counter is not None:
                setup.counter.set_layout(((Row.WARMUP, setup.max_rows),))
            return
        if not self._has_started:
            self._has_started = True
            if isinstance(setup.recorder, LiveRecorder):
                setup.recorder.start()
        if self._placement is not None:
            self._following.attempt(self._placement.look)
        if setup.timing is not None:
            self._timing.attempt(self._start_time, setup.timing)
        self._lay_out(setup, batch)
        if not sglang_batch.continues_a_pass(batch):
            self._copies.attempt(sglang_memory.count_state_copies, setup.recorder, batch)

    def _start_time(self, timing: PassTiming) -> None:
        self._start = timing.begin()
        timing.look_into()

    def _lay_out(self, setup: RankSetup, batch: Any) -> None:
        segments = sglang_batch.segments_of(batch)
        if sglang_batch.continues_a_pass(batch):
            # The same rows as in its first layers, which have counted as a pass.
            if setup.counter is not None:
                setup.counter.set_layout(segments)
            return
        self._now = pass_of(segments)
        if setup.counter is None:
            return
        if segments:
            setup.recorder.begin_step(*segments)
        else:
            # Nobody's rows, about as many as the other ranks have: the device counts them.
            rows = min(sglang_batch.most_idle_rows(batch), setup.max_rows)
            setup.counter.set_layout(((Row.DUMMY, rows),))

    def _end(self) -> None:
        if self._setup is not None and self._setup.timing is not None:
            self._timing.attempt(self._setup.timing.end, self._start, self._now)

    def _stop_timing(self) -> None:
        if self._setup is not None and self._setup.timing is not None:
            self._setup.timing.stop()

    def _count(self, layer: int, ordinal: int, topk_ids: Any) -> None:
        setup = self._setup
        assert setup is not None  # noqa: S101 - for the type checker: the layer has an ordinal
        assert setup.counter is not None  # noqa: S101 - same
        self._has_selected = True
        if not self._is_in_pass and not sglang_graphs.is_captured(topk_ids):
            setup.counter.set_layout(((Row.WARMUP, setup.max_rows),))
        ids = setup.ranks.own_rows(topk_ids, _gathered_rows() if setup.ranks.is_gathered else None)
        if ids is None:
            return
        if self._logical_ids:
            ids = self._logical_ids[-1].translate(layer, ids)
        setup.counter.add(ordinal, ids)

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
        try:
            self._stop_timing()
            if self._setup is not None and self._setup.counter is not None:
                # Captured graphs go on counting; into a row that is not load.
                self._setup.counter.set_layout(())
        except Exception:
            logger.debug("moescope: could not take the hook back", exc_info=True)


def _gathered_rows() -> Any:
    from sglang.srt.layers.dp_attention import get_dp_global_num_tokens  # noqa: PLC0415 - lazy

    return get_dp_global_num_tokens()
