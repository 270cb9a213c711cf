"""Who reports: the resource that every window of a process carries."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from moescope.schemas import attributes as a
from moescope.schemas.topology import ModelShape, RankGrid


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """One engine process.

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
