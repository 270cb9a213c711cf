"""What one SGLang rank needs once its model is loaded: its shape, its place, its counters, its recorder."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from moescope.collector.expert_load import ExpertCounter, NumpyExpertCounter
from moescope.collector.expert_load_torch import TorchExpertCounter
from moescope.collector.gpu import watch_gpu
from moescope.collector.hooks import (
    sglang_counter,
    sglang_memory,
    sglang_ranks,
    sglang_shape,
    sglang_timing,
    sglang_version,
    sglang_waits,
)
from moescope.collector.live_recorder import LiveRecorder
from moescope.collector.pass_timing import PassTiming
from moescope.collector.recorder import NullRecorder
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


@dataclass(frozen=True, slots=True)
class RankSetup:
    """All of it.

    Attributes:
        counter: where ids are counted; None on a rank that only holds experts.
        max_rows: the most token rows of a pass.
        timing: times passes; None on a device without a clock.
        waits: reads what DeepEP's kernels waited; None without DeepEP.
    """

    shape: ModelShape
    ranks: sglang_ranks.Ranks
    recorder: LiveRecorder | NullRecorder
    counter: TorchExpertCounter | None
    max_rows: int
    pools: sglang_memory.Pools
    timing: PassTiming | None
    waits: sglang_waits.WaitWatch | None

    @contextmanager
    def reads_paused(self) -> Iterator[None]:
        """Keep the reporter's thread from calling the device, while this thread captures a CUDA graph."""
        with ExitStack() as paused:
            for reads in (self.counter, self.waits):
                if reads is not None:
                    paused.enter_context(reads.reads_paused())
            yield


def set_up(runner: Any, metadata: Any, make_recorder: MakeRecorder) -> RankSetup | None:
    """Put it together for SGLang's model runner; None where there is nothing to count or to hold.

    Args:
        runner: its model is loaded, its graphs are not captured yet.
        metadata: SGLang's expert location metadata, or None where it has none for the model.
        make_recorder: makes the recorder.

    Raises:
        EngineNotSupportedError: the model or the deployment is of a kind that the hook cannot follow.
    """
    config = runner.model_config.hf_text_config
    if not sglang_shape.has_experts(config):
        logger.info("moescope: the model has no routed experts; there is nothing to count")
        return None
    ranks = sglang_ranks.find_ranks()
    if not ranks.reports:
        return None
    settings = load_engine_settings()
    experts = sglang_shape.find_experts(runner.model)
    shape = sglang_shape.shape_of(_model_name(), config, [module.layer_id for module in experts])
    max_rows = sglang_ranks.most_rows_of_a_pass(int(runner.model_config.context_len))
    counter = _open_counter(shape, ranks, settings, max_rows, runner.device)
    recorder = make_recorder(
        _identify(shape, ranks, settings),
        counter or NumpyExpertCounter(shape.num_moe_layers, shape.num_experts),
        settings=settings,
    )
    seams = sglang_timing.seams_of(experts, has_exchange=ranks.routes_own_rows)
    setup = RankSetup(
        shape,
        ranks,
        recorder,
        counter,
        max_rows,
        pools=sglang_memory.Pools(runner, experts, _redundant_share(metadata)),
        timing=sglang_timing.time_passes(recorder, runner.device, shape, seams, settings),
        waits=sglang_waits.watch_low_latency_waits(ranks.ep_size, runner.device) if counter else None,
    )
    _poll(setup, runner, settings)
    return setup


def _identify(shape: ModelShape, ranks: sglang_ranks.Ranks, settings: Settings) -> EngineIdentity:
    return EngineIdentity(
        service=shape.name,
        shape=shape,
        grid=ranks.grid(settings.ep_group),
        engine="sglang",
        engine_version=sglang_version.installed_version(),
        role=sglang_ranks.role_of_this_process(),
    )


def _open_counter(
    shape: ModelShape, ranks: sglang_ranks.Ranks, settings: Settings, max_rows: int, device: Any
) -> TorchExpertCounter | None:
    if not ranks.counts:
        return None
    return sglang_counter.open_counter(
        shape.num_moe_layers,
        shape.num_experts,
        max_rows,
        device,
        ep_size=ranks.ep_size,
        shard=ranks.shard,
        by_peer=settings.rank_traffic and ranks.ep_size > 1,
    )


def _poll(setup: RankSetup, runner: Any, settings: Settings) -> None:
    recorder = setup.recorder
    recorder.poll(lambda: setup.pools.report(recorder))
    if settings.gpu_metrics and torch.device(runner.device).type == "cuda":
        watch_gpu(recorder, getattr(runner, "gpu_id", None))
    waits = setup.waits
    if waits is not None:
        recorder.poll(lambda: waits.report(recorder))


def _redundant_share(metadata: Any) -> float:
    if metadata is None:
        return 0.0
    return 1 - float(metadata.num_logical_experts) / float(metadata.num_physical_experts)


def _model_name() -> str:
    from sglang.srt.runtime_context import get_serving  # noqa: PLC0415 - engines are imported where they are

    return sglang_shape.name_of(str(get_serving().served_model_name))
