"""One sentence about what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from moescope.schemas.attributes import Phase


class Severity(IntEnum):
    """How much a finding matters; smaller is worse."""

    PROBLEM = 1
    WARNING = 2
    NOTE = 3


class Subject(StrEnum):
    """What a finding is about: where its evidence is found."""

    EXPERT_LOAD = "expert_load"
    RANKS = "ranks"
    LATENCY = "latency"
    DRIFT = "drift"
    MEMORY = "memory"
    REPLICATION = "replication"
    FAILOVER = "failover"
    QUALITY = "quality"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, and where its evidence is.

    Attributes:
        title: one sentence with the numbers that matter.
        detail: how it was decided, and what would help.
        weight: larger is worse, among findings of the same severity.
        service, ep_group, phase, layer, expert, rank: where to look; None where it concerns more than one.
        subject: what it is about.
    """

    severity: Severity
    title: str
    detail: str
    weight: float
    service: str
    ep_group: str | None = None
    phase: Phase | None = None
    layer: int | None = None
    expert: int | None = None
    rank: int | None = None
    subject: Subject = Subject.EXPERT_LOAD
