"""Who an SGLang process is beside the rank that it may hold: a scheduler, or the front end."""

from __future__ import annotations

from typing import Protocol

from moescope.collector.hooks import sglang_ranks, sglang_shape, sglang_version
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


def identity_of(component: Component, grid: RankGrid) -> ProcessIdentity:
    """Say who speaks for the engine whose first rank is ``grid``."""
    from sglang.srt.runtime_context import get_serving  # noqa: PLC0415 - engines are imported where they are there

    name = sglang_shape.name_of(str(get_serving().served_model_name))
    return ProcessIdentity(
        service=name,
        component=component,
        model=name,
        grid=grid,
        engine="sglang",
        engine_version=sglang_version.installed_version(),
        role=sglang_ranks.role_of_this_process(),
    )


def grid_of_front_end(settings: Settings) -> RankGrid:
    """The front end speaks for every rank of the deployment: it names the first one and its EP group.

    A deployment of several groups (replicas, pipeline stages, MoE DP, attention DP without EP) has all its
    requests with the first of them, and goodput per rank divides them by the EP ranks of that one.
    """
    return sglang_ranks.find_first_rank().grid(settings.ep_group)


def grid_of_scheduler(settings: Settings) -> RankGrid:
    """A scheduler speaks for the rank in its own process."""
    return sglang_ranks.find_ranks().grid(settings.ep_group)


def page_tokens() -> int | None:
    """Tokens of one page of the prefix cache; None where there is no prefix cache."""
    from sglang.srt.runtime_context import get_memory, get_schedule  # noqa: PLC0415 - same

    return None if get_memory().disable_radix_cache else int(get_schedule().page_size or 1)
