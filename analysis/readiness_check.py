"""One check of a readiness protocol: what was asked, what was found, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckStatus(StrEnum):
    """How a check ended."""

    FAILED = "failed"
    NOT_CHECKED = "not checked"
    PASSED = "passed"


class Section(StrEnum):
    """The sections of a protocol, in its order."""

    EXPERT_PLACEMENT = "expert_placement"
    LOAD_BALANCE = "load_balance_check"
    PARTIAL_FAILURE = "partial_failure"
    EXPERT_METRICS = "expert_metrics"
    MEMORY = "memory"
    GOODPUT = "goodput"


class Bound(StrEnum):
    """On which side of its limit a measured value has to be."""

    AT_MOST = "at most"
    AT_LEAST = "at least"
    EXACTLY = "exactly"


class Unit(StrEnum):
    """What a measured value and its limit are, in UCUM or in the words of a ratio."""

    EXPERTS = "{expert}"
    RANKS = "{rank}"
    REQUESTS = "{request}"
    SHARE = "1"
    SECONDS = "s"
    MAX_OVER_MEAN = "max / mean"
    MEAN_OVER_MAX = "mean / max"
    MAX_OVER_MEAN_MINUS_1 = "max / mean − 1"
    TIMES = "×"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the answer.

    Attributes:
        name: the key of the protocol that it judges, within its section.
        scope: EP group and phase, empty where the whole deployment is meant.
        measured, limit: in ``unit``; None where there is no number.
        evidence: a sentence: what was found, or why nothing was.
        action: what to do; empty where nothing is.
    """

    section: Section
    name: str
    status: CheckStatus
    scope: str = ""
    measured: float | None = None
    limit: float | None = None
    unit: Unit | None = None
    bound: Bound | None = None
    evidence: str
    action: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a check is of: makes its checks without repeating it."""

    section: Section
    name: str
    scope: str = ""

    def compare(
        self, measured: float, bound: Bound, limit: float, unit: Unit, *, evidence: str, action: str
    ) -> Check:
        """Judge a value by its limit; ``action`` is kept where it fails."""
        measured = max(0.0, measured)  # a share of nothing may come as a negative zero
        is_within = {
            Bound.AT_MOST: measured <= limit,
            Bound.AT_LEAST: measured >= limit,
            Bound.EXACTLY: measured == limit,
        }[bound]
        return Check(
            section=self.section,
            name=self.name,
            scope=self.scope,
            status=CheckStatus.PASSED if is_within else CheckStatus.FAILED,
            measured=measured,
            limit=limit,
            unit=unit,
            bound=bound,
            evidence=evidence,
            action="" if is_within else action,
        )

    def state(self, *, is_fine: bool, evidence: str, action: str) -> Check:
        """Judge what has no number; ``action`` is kept where it fails."""
        return Check(
            section=self.section,
            name=self.name,
            scope=self.scope,
            status=CheckStatus.PASSED if is_fine else CheckStatus.FAILED,
            evidence=evidence,
            action="" if is_fine else action,
        )

    def not_checked(self, why: str, action: str = "") -> Check:
        """Say why it cannot be judged."""
        return Check(
            section=self.section,
            name=self.name,
            scope=self.scope,
            status=CheckStatus.NOT_CHECKED,
            evidence=why,
            action=action,
        )
