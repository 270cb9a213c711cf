"""Who a window on a Prometheus page came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from moescope.schemas import attributes as a

Place: TypeAlias = tuple[str, ...]
"""Label values that say where in the fleet: of a group, of a rank, or of a process."""

_MAX_LABEL_CHARACTERS: Final = 256
_SINGLE_PROCESSES: Final = frozenset({a.Component.RANK.value, a.Component.SCHEDULER.value})
"""There is one of each per rank: a new instance is the old one restarted, and takes its place at once."""


@dataclass(frozen=True, slots=True)
class Source:
    """Who sent a window: its place in the fleet, and which process it is."""

    service: str
    ep_group: str
    ep_rank: str
    component: str
    instance: str

    @property
    def group(self) -> Place:
        """The EP group."""
        return (self.service, self.ep_group)

    @property
    def rank(self) -> Place:
        """The rank, or the first rank of the engine that the process speaks for."""
        return (self.service, self.ep_group, self.ep_rank)

    @property
    def process(self) -> Place:
        """The process; where there is one per rank, whichever instance of it."""
        instance = "" if self.component in _SINGLE_PROCESSES else self.instance
        return (*self.rank, self.component, instance)


def source_of(resource: Mapping[str, Any]) -> Source:
    """Read who sent a window from its resource attributes, as OTLP carries them."""

    def text(key: str, default: str = "") -> str:
        return label(resource.get(key, default))

    return Source(
        text(a.SERVICE_NAME),
        text(a.EP_GROUP, "0"),
        text(a.EP_RANK, "0"),
        text(a.COMPONENT, a.Component.RANK.value),
        text(a.SERVICE_INSTANCE_ID),
    )


def label(value: object) -> str:
    """A label value; no sender makes it longer than a page can bear."""
    return str(value)[:_MAX_LABEL_CHARACTERS]
