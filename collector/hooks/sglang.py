"""SGLang 0.5.23: three of its functions are wrapped, by its own registry of plug-ins' hooks.

All else hangs on the objects that those hand out. The model runner, which only some processes load, is
wrapped where it asks for its recorder.
"""

from __future__ import annotations

import functools
import logging
import sys
from typing import Any, Final

from moescope.collector.hooks import (
    sglang_batch,
    sglang_collectors,
    sglang_process,
    sglang_ranks,
    sglang_requests,
)
from moescope.collector.hooks.sglang_process import MakeProcessRecorder
from moescope.collector.hooks.sglang_rank import RankWatch
from moescope.collector.hooks.sglang_setup import MakeRecorder
from moescope.collector.hooks.sglang_version import is_supported_version
from moescope.collector.process_recorder import ProcessRecorder
from moescope.collector.recorder import Meter
from moescope.collector.requests import RequestMetrics
from moescope.schemas.attributes import Component
from moescope.schemas.settings import Settings, load_engine_settings
from moescope.schemas.topology import RankGrid

logger = logging.getLogger("moescope")

RECORDER: Final = "sglang.srt.eplb.expert_distribution.ExpertDistributionRecorder.init_new"
BATCH: Final = "sglang.srt.model_executor.forward_batch_info.ForwardBatch.init_new"
COLLECTOR: Final = "sglang.srt.observability.metrics_collector.resolve_collector_class"

_MODEL_RUNNER: Final = "sglang.srt.model_executor.model_runner"
_MARK: Final = "_moescope_original"


class SglangHook:
    """What one SGLang process has of moescope: at most one rank, one scheduler, one front end."""

    def __init__(self, make_recorder: MakeRecorder, make_process_recorder: MakeProcessRecorder) -> None:
        self._make_process_recorder = make_process_recorder
        self._has_warned = False
        self.rank = RankWatch(make_recorder)

    def make_expert_recorder(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Around SGLang's factory of its recorder: the same recorder, listened to."""
        inner = original(*args, **kwargs)
        try:
            from moescope.collector.hooks.sglang_recorder import listen  # noqa: PLC0415 - SGLang is loaded by now

            metadata = kwargs.get("expert_location_metadata", args[0] if args else None)
            self.rank.use_metadata(metadata)
            self._watch_model_runner()
            return listen(inner, self.rank)
        except Exception:
            logger.exception("moescope: expert load is not counted; SGLang serves on")
            return inner

    def mark_batch(self, batch: Any, *args: Any, **kwargs: Any) -> None:
        """After a batch is made: how many of its requests decode though it is an extend pass."""
        try:
            scheduled = kwargs.get("batch", args[1] if len(args) > 1 else None)  # args[0] is the class
            decoding = getattr(scheduled, "decoding_reqs", None)
            if decoding is not None:
                setattr(batch, sglang_batch.DECODING, len(decoding))
        except Exception:
            if not self._has_warned:
                self._has_warned = True
                logger.exception("moescope: decoding tokens of mixed batches may be counted as prefill")

    def find_collector(self, original: Any, role: str, default_cls: type) -> type:
        """Around SGLang's choice of a collector's class: that class, listened to."""
        chosen: type = original(role, default_cls)
        try:
            if role == "tokenizer":
                return sglang_collectors.listening_tokenizer(chosen, self._open_front_end)
            if role == "scheduler":
                return sglang_collectors.listening_scheduler(chosen, self._open_scheduler)
        except Exception:
            logger.exception("moescope: requests are not measured; SGLang serves on")
        return chosen

    def _open_front_end(self) -> sglang_requests.FrontEnd:
        settings = load_engine_settings()
        grid = sglang_process.grid_of_front_end(settings)
        recorder, requests = self._open_recorder(Component.FRONTEND, grid, settings)
        return sglang_requests.FrontEnd(
            recorder,
            requests,
            page_tokens=sglang_process.page_tokens(),
            role=sglang_ranks.role_of_this_process,
        )

    def _open_scheduler(self) -> sglang_requests.Scheduler:
        settings = load_engine_settings()
        grid = sglang_process.grid_of_scheduler(settings)
        recorder, requests = self._open_recorder(Component.SCHEDULER, grid, settings)
        return sglang_requests.Scheduler(recorder, requests, self.rank.take_stats)

    def _open_recorder(
        self, component: Component, grid: RankGrid, settings: Settings
    ) -> tuple[Meter, RequestMetrics]:
        identity = sglang_process.identity_of(component, grid)
        recorder = self._make_process_recorder(identity, settings=settings)
        if isinstance(recorder, ProcessRecorder):
            recorder.start()
        requests = RequestMetrics(recorder, model=identity.model, provider=identity.engine, settings=settings)
        return recorder, requests

    def _watch_model_runner(self) -> None:
        """Hear when a model is loaded. Only where the runner is loaded already: it is the one that asks."""
        runner = getattr(sys.modules.get(_MODEL_RUNNER), "ModelRunner", None)
        if runner is None or hasattr(runner.load_model, _MARK):
            return
        original = runner.load_model
        rank = self.rank

        @functools.wraps(original)
        def load_and_watch(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            rank.attach(self)
            return result

        setattr(load_and_watch, _MARK, original)
        runner.load_model = load_and_watch


def install(make_recorder: MakeRecorder, make_process_recorder: MakeProcessRecorder) -> bool:
    """Register the hooks with SGLang, which puts them in once all plug-ins have. Safe to call again.

    Returns:
        whether they are: not with another version of SGLang than they were written for.
    """
    if not is_supported_version():
        return False
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415 - lazy

    there = HookRegistry._hooks.get(RECORDER, ())  # noqa: SLF001 - the registry does not say what it has
    if any(isinstance(getattr(hook, "__self__", None), SglangHook) for _, hook, _ in there):
        return True
    hook = SglangHook(make_recorder, make_process_recorder)
    HookRegistry.register(RECORDER, hook.make_expert_recorder, HookType.AROUND)
    HookRegistry.register(BATCH, hook.mark_batch, HookType.AFTER)
    HookRegistry.register(COLLECTOR, hook.find_collector, HookType.AROUND)
    return True
