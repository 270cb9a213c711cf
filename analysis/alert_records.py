"""Alerts as a page shows them, whoever evaluates their rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class AlertState(StrEnum):
    """What an alert is, the worst first."""

    FIRING = "firing"
    NO_DATA = "no_data"
    PENDING = "pending"
    INACTIVE = "inactive"


class AlertSeverity(StrEnum):
    """Whom it is for: somebody who is woken, or the next morning."""

    PAGE = "page"
    TICKET = "ticket"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Silence:
    """Why nobody is told of an alert, by whom, and until when."""

    comment: str
    created_by: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class EvidenceLink:
    """Where the evidence is: a page of the dashboard by its file's stem, or an address elsewhere."""

    page: str
    params: Mapping[str, str]
    url: str


@dataclass(frozen=True, slots=True)
class ShownAlert:
    """One alert.

    Attributes:
        name: of its rule.
        labels: those that say what it is about, without name and severity.
        summary, description: its annotations; the summary is the name where there is none.
        value: as its source writes it; empty where it has none.
        since: when its condition began to hold.
        runbook: heading of its section in the runbook.
        silence_link: Alertmanager's form with the alert's labels filled in; empty without an Alertmanager.
        silences: that keep it from being told.
        is_inhibited: another alert says it already.
        source: who evaluates its rule.
    """

    name: str
    severity: AlertSeverity
    state: AlertState
    labels: Mapping[str, str]
    summary: str
    description: str
    value: str
    since: datetime | None
    runbook: str
    evidence: EvidenceLink | None
    silence_link: str
    silences: tuple[Silence, ...]
    is_inhibited: bool
    source: str

    @property
    def is_told(self) -> bool:
        """Whether somebody is told of it."""
        return not self.silences and not self.is_inhibited


@dataclass(frozen=True, slots=True)
class RuleState:
    """A rule and how it fares; ``error`` is why it could not be evaluated, else empty."""

    name: str
    group: str
    source: str
    state: AlertState
    error: str
    last_evaluation: datetime | None


@dataclass(frozen=True, slots=True)
class SourceState:
    """Whom the page asked; ``problem`` is why there is no answer and what to do, else empty."""

    address: str
    kind: str
    rules: int
    problem: str


@dataclass(frozen=True, slots=True)
class Alerts:
    """Everything that the page shows of now.

    Attributes:
        told: alerts of which somebody is told, firing first, then without data, then pending; a page
            before a ticket, the oldest first.
        untold: those that are silenced or inhibited, in the same order.
        rules: by source and group.
        sources: that were asked, the Alertmanager last where one is set.
    """

    told: tuple[ShownAlert, ...]
    untold: tuple[ShownAlert, ...]
    rules: tuple[RuleState, ...]
    sources: tuple[SourceState, ...]

    def count(self, state: AlertState) -> int:
        """How many of those that are told are in a state."""
        return sum(alert.state is state for alert in self.told)


@dataclass(frozen=True, slots=True)
class AlertSpan:
    """A stretch of time in which an alert was in one state."""

    name: str
    labels: Mapping[str, str]
    severity: AlertSeverity
    state: AlertState
    start: datetime
    end: datetime
    is_open: bool
