"""Who a vLLM process without experts is: a front end or an engine core, and which engine it speaks for."""

from __future__ import annotations

from typing import Any, Protocol

from moescope.collector.hooks import vllm_ranks
from moescope.collector.process_recorder import ProcessRecorder
from moescope.collector.recorder import NullRecorder
from moescope.schemas.attributes import Component
from moescope.schemas.identity import ProcessIdentity
from moescope.schemas.settings import Settings
from moescope.schemas.topology import RankGrid


class MakeProcessRecorder(Protocol):
    """What :func:`moescope.api.make_process_recorder` offers."""

    def __call__(
        self, identity: ProcessIdentity, *, settings: Settings | None = None
    ) -> ProcessRecorder | NullRecorder:
        """Put a recorder together; it reports once it is started."""


def identity_of(
    vllm_config: Any, component: Component, *, dp_rank: int, settings: Settings
) -> ProcessIdentity:
    """Say who speaks for the engine with that data-parallel rank.

    Raises:
        ShapeError: the rank is outside the deployment that the configuration describes.
    """
    import vllm  # noqa: PLC0415 - engines are imported where they are there

    name = vllm_ranks.name_of_model(vllm_config)
    return ProcessIdentity(
        service=name,
        component=component,
        model=name,
        grid=first_rank_of(vllm_config.parallel_config, dp_rank, settings.ep_group),
        engine="vllm",
        engine_version=vllm.__version__,
        role=vllm_ranks.role_of(vllm_config),
    )


def first_rank_of(parallel_config: Any, dp_rank: int, ep_group: str) -> RankGrid:
    """The first EP rank of one engine's first pipeline stage, as its workers call themselves.

    vLLM numbers the ranks of an EP group by data-parallel rank first.

    Ranks are EP ranks, and what counts an engine's ranks, as goodput's cost does, counts those of this group:
    one where experts are not spread, however many GPUs tensor parallelism has, and of a pipeline the first
    stage's, for which alone its front end speaks.
    """
    tp_size, pp_size = parallel_config.tensor_parallel_size, parallel_config.pipeline_parallel_size
    ranks_per_engine = tp_size * parallel_config.prefill_context_parallel_size
    is_expert_parallel = parallel_config.enable_expert_parallel
    return vllm_ranks.Ranks(
        dp_rank=dp_rank,
        dp_size=parallel_config.data_parallel_size,
        tp_rank=0,
        tp_size=tp_size,
        pp_rank=0,
        pp_size=pp_size,
        ep_rank=dp_rank * ranks_per_engine if is_expert_parallel else 0,
        ep_size=parallel_config.data_parallel_size * ranks_per_engine if is_expert_parallel else 1,
    ).grid(ep_group)
