"""Who reports: the resource that every window of a process carries."""

from __future__ import annotations

import dataclasses
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

from moescope.schemas import attributes as a
from moescope.schemas.topology import ModelShape, RankGrid


class Identity(Protocol):
    """Who reports. A restart, and a forked child, is somebody else."""

    @property
    def service(self) -> str:
        """The deployment (``service.name``)."""

    def resource_attributes(self) -> Mapping[str, str | int]:
        """The OTLP resource attributes, in a stable order."""

    def as_new_instance(self) -> Self:
        """The same process kind and place, with an instance id of its own."""

    def named(self, service: str) -> Self:
        """The same, as part of another deployment."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process of a deployment that holds no experts itself: a scheduler, a front end, a scraper.

    Attributes:
        service: the deployment (``service.name``).
        component: what kind of process it is.
        model: name of the model served; empty if unknown.
        grid: the EP group, and the first rank, of the engine that it speaks for.
        engine: ``vllm``, ``sglang``, ``dynamo``, ``custom``.
        instance: unique per start.
    """

    service: str
    component: a.Component
    model: str = ""
    grid: RankGrid = field(default_factory=RankGrid)
    engine: str = "custom"
    engine_version: str = ""
    role: a.Role = a.Role.MIXED
    instance: str = field(default_factory=lambda: str(uuid.uuid4()))
    host: str = field(default_factory=socket.gethostname)

    def resource_attributes(self) -> Mapping[str, str | int]:
        """See :meth:`Identity.resource_attributes`."""
        return {
            a.SERVICE_NAME: self.service,
            a.SERVICE_INSTANCE_ID: self.instance,
            a.HOST_NAME: self.host,
            a.COMPONENT: self.component.value,
            a.EP_GROUP: self.grid.ep_group,
            a.EP_RANK: self.grid.ep_rank,
            a.EP_SIZE: self.grid.ep_size,
            a.MODEL_NAME: self.model,
            a.ENGINE: self.engine,
            a.ENGINE_VERSION: self.engine_version,
            a.ROLE: self.role.value,
        }

    def as_new_instance(self) -> Self:
        """See :meth:`Identity.as_new_instance`."""
        return dataclasses.replace(self, instance=str(uuid.uuid4()))

    def named(self, service: str) -> Self:
        """See :meth:`Identity.named`."""
        return dataclasses.replace(self, service=service)


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """One rank of an engine: the process that holds and computes experts.

    Attributes:
        service: the deployment (``service.name``).
        shape: the model served.
        grid: this process's place in its EP group.
        engine: ``vllm``, ``sglang``, ``transformers``, ``custom`` or ``simulator``.
        instance: unique per start, so that a restart never continues another process's windows.
    """

    service: str
    shape: ModelShape
    grid: RankGrid = field(default_factory=RankGrid)
    engine: str = "custom"
    engine_version: str = ""
    role: a.Role = a.Role.MIXED
    instance: str = field(default_factory=lambda: str(uuid.uuid4()))
    host: str = field(default_factory=socket.gethostname)

    def resource_attributes(self) -> Mapping[str, str | int]:
        """The OTLP resource attributes, in a stable order."""
        return {
            a.SERVICE_NAME: self.service,
            a.SERVICE_INSTANCE_ID: self.instance,
            a.HOST_NAME: self.host,
            a.COMPONENT: a.Component.RANK.value,
            a.EP_GROUP: self.grid.ep_group,
            a.EP_RANK: self.grid.ep_rank,
            a.EP_SIZE: self.grid.ep_size,
            a.MODEL_NAME: self.shape.name,
            a.MODEL_EXPERTS: self.shape.num_experts,
            a.MODEL_LAYERS: self.shape.num_layers,
            a.MODEL_MOE_LAYERS: self.shape.num_moe_layers,
            a.MODEL_TOP_K: self.shape.top_k,
            a.ENGINE: self.engine,
            a.ENGINE_VERSION: self.engine_version,
            a.ROLE: self.role.value,
        }

    def as_new_instance(self) -> Self:
        """See :meth:`Identity.as_new_instance`."""
        return dataclasses.replace(self, instance=str(uuid.uuid4()))

    def named(self, service: str) -> Self:
        """See :meth:`Identity.named`."""
        return dataclasses.replace(self, service=service)
