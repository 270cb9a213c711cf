"""What a rule file says, checked: groups, rules, and what to do without data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from moescope.alerting.expression import Expression
from moescope.alerting.template import Template

DEFAULT_LIMIT: Final = 1000
"""Most alerts of one rule: a rule that finds more is wrong, and would flood whoever is on call."""


class NoData(StrEnum):
    """What it means that a series which was active is gone, although the rule says what it sees."""

    OK = "ok"  # as if it were fine
    KEEP = "keep"  # it stays what it was, as without data, for an hour at most
    ALERT = "alert"  # that it is missing is what the alert is about


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One rule.

    Attributes:
        name: of the alert.
        key: names the rule in the file of states, for as long as group and name stay.
        expression: its SQL.
        for_seconds: so long a series is active before it fires.
        keep_firing_seconds: so long it must be fine before it stops firing.
        labels: templates of the labels that every alert gets besides those of its row.
        annotations: templates.
        no_data: what missing data mean; nothing can be missing where the rule does not say what it sees.
        line: where the rule begins in its file.
    """

    name: str
    key: str
    expression: Expression
    for_seconds: float = 0.0
    keep_firing_seconds: float = 0.0
    labels: Mapping[str, Template] = field(default_factory=dict)
    annotations: Mapping[str, Template] = field(default_factory=dict)
    no_data: NoData = NoData.KEEP
    line: int = 1


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """Rules that are evaluated one after another, at the same times.

    Attributes:
        interval_seconds: between two evaluations; the setting's where it is None.
        delay_seconds: how old the data must be; the setting's where it is None.
        limit: most alerts of each of its rules.
    """

    name: str
    file: Path
    rules: tuple[AlertRule, ...]
    interval_seconds: float | None = None
    delay_seconds: float | None = None
    limit: int = DEFAULT_LIMIT

    def where(self, rule: AlertRule) -> str:
        """How messages name a rule."""
        return f"{self.file}:{rule.line}: group {self.name}, rule {rule.name}"
