"""One test of rules: what is in the store, and what must fire when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moescope.alerting.alert_state import State


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows for one table: constant columns, and columns with a value for each step."""

    table: str
    columns: Mapping[str, Any]
    values: Mapping[str, list[float | int | None]]
    count: int


@dataclass(frozen=True, slots=True)
class ExpectedAlert:
    """One alert that must be there."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """Which alerts of a name must be in a state at a time, all of them and no others."""

    eval_seconds: float
    alertname: str
    state: State
    alerts: tuple[ExpectedAlert, ...]
    line: int


@dataclass(frozen=True, slots=True)
class RuleTest:
    """One test. ``interval_seconds`` lies between the rows of its input."""

    name: str
    interval_seconds: float
    rows: tuple[Rows, ...]
    simulate: Mapping[str, Any] | None
    expectations: tuple[Expectation, ...]
    line: int

    @property
    def span_seconds(self) -> float:
        """From the start to the last thing that is expected or written."""
        written = max((rows.count for rows in self.rows), default=0) * self.interval_seconds
        return max(written, *(one.eval_seconds for one in self.expectations))
