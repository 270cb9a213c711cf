"""What a gateway is told of each endpoint, frozen: a server shows it and does not compute it.

An endpoint is an EP group of a deployment. Signals stand in four kinds, in the order in which a gateway uses
them: eligibility, load and headroom, probable state, economics. KDA state and MLA KV cache are two signals,
prefill and decode are two; neither pair is ever added up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final


class Confidence(StrEnum):
    """How far a signal can be trusted: by the number of observations behind it and by its age.

    ``HIGH``: at least 30 requests or 3 windows, and not older than 30 s. ``MEDIUM``: at least 5 requests or
    one window, and not older than 2 min. ``LOW``: anything else that has a value. ``NONE``: no value.
    """

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    NONE = "none"


class Evidence(StrEnum):
    """What the observations behind a signal are."""

    REQUESTS = "requests"
    WINDOWS = "windows"


ENOUGH: Final = {
    Confidence.HIGH: {Evidence.REQUESTS: 30, Evidence.WINDOWS: 3},
    Confidence.MEDIUM: {Evidence.REQUESTS: 5, Evidence.WINDOWS: 1},
}
"""Observations from which on a signal has that confidence, if it is fresh enough."""
FRESH_SECONDS: Final = {Confidence.HIGH: 30.0, Confidence.MEDIUM: 120.0}
"""Age up to which a signal has that confidence, if enough is behind it."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One number with what it needs to be used.

    Attributes:
        value: None where nobody reported it.
        unit: as in the metric registry; ``1`` is a ratio.
        age_seconds: from the end of the newest window that it comes from until now; None without a value.
        observations: how many requests or windows are behind it.
        evidence: which of the two.
        confidence: see :class:`Confidence`.
    """

    value: float | None
    unit: str
    age_seconds: float | None
    observations: int
    evidence: Evidence
    confidence: Confidence


def make_signal(
    value: float | None, unit: str, *, age_seconds: float, observations: int, evidence: Evidence
) -> Signal:
    """Put a number and its confidence together."""
    if value is None:
        return Signal(None, unit, None, 0, evidence, Confidence.NONE)
    age = max(age_seconds, 0.0)
    for level in (Confidence.HIGH, Confidence.MEDIUM):
        if observations >= ENOUGH[level][evidence] and age <= FRESH_SECONDS[level]:
            return Signal(value, unit, age, observations, evidence, level)
    return Signal(value, unit, age, observations, evidence, Confidence.LOW)


@dataclass(frozen=True, slots=True)
class EndpointLimits:
    """What somebody configured for an endpoint; nothing of it is measured or guessed.

    Attributes:
        service: deployment.
        ep_group: one EP group, or empty for all of the deployment.
        max_context_tokens: longest prompt and output together; None where the file does not say.
        modalities: what it takes, such as ``text`` and ``image``; None where the file does not say.
        url: where it is reached; empty where the file does not say.
    """

    service: str
    ep_group: str = ""
    max_context_tokens: int | None = None
    modalities: tuple[str, ...] | None = None
    url: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One EP group, and everything that is known of it.

    Attributes:
        role: prefill, decode or mixed.
        host, instance: of its front end; empty where none reports.
        limits: as configured; None where nothing is.
        load, state, economics: signals by name.
    """

    service: str
    ep_group: str
    role: str
    host: str
    instance: str
    limits: EndpointLimits | None
    load: Mapping[str, Signal]
    state: Mapping[str, Signal]
    economics: Mapping[str, Signal]

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape of one endpoint."""
        limits = self.limits
        return {
            "service": self.service,
            "ep_group": self.ep_group,
            "role": self.role,
            "host": self.host or None,
            "instance": self.instance or None,
            "eligibility": {
                "status": "not configured" if limits is None else "configured",
                "max_context_tokens": None if limits is None else limits.max_context_tokens,
                "modalities": None if limits is None or limits.modalities is None else [*limits.modalities],
                "url": None if limits is None else limits.url or None,
            },
            "load": _signals(self.load),
            "state": _signals(self.state),
            "economics": _signals(self.economics),
        }


@dataclass(frozen=True, slots=True)
class FleetSignals:
    """Every endpoint at one moment.

    Attributes:
        computed_ms: Unix milliseconds; ages count until then.
    """

    computed_ms: int
    endpoints: tuple[Endpoint, ...]

    def to_dict(self, service: str | None = None) -> dict[str, Any]:
        """The JSON shape: ``schemas/reports/signals.schema.json``; of one deployment if it is named."""
        computed = datetime.fromtimestamp(self.computed_ms / 1000, UTC)
        chosen = [one for one in self.endpoints if service is None or one.service == service]
        return {"computed_at": computed.isoformat(), "endpoints": [one.to_dict() for one in chosen]}


def _signals(signals: Mapping[str, Signal]) -> dict[str, Any]:
    return {name: asdict(signal) for name, signal in signals.items()}
