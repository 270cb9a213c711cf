"""Can the numbers be believed? Who reports, who fell silent, and whether the counts add up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from moescope.analysis.expert_load import from_ms
from moescope.analysis.store import Store


class HealthState(StrEnum):
    """What the view ``telemetry_health`` says of an engine process."""

    OK = "ok"
    SILENT = "silent"
    NO_COUNTS = "no counts"
    NOT_CONSERVED = "not conserved"


@dataclass(frozen=True, slots=True)
class InstanceHealth:
    """One engine process, as ``queries/telemetry_health.sql`` describes it."""

    service: str
    instance: str
    ep_group: str
    ep_rank: int
    first_ms: int
    last_ms: int
    lag_seconds: float
    windows: int
    tokens: int
    excluded_tokens: int
    assignments: int
    expected_assignments: int
    missing_assignments: int
    export_failures: int
    state: HealthState

    @property
    def last_seen(self) -> datetime:
        """End of its last window, UTC."""
        return from_ms(self.last_ms)


@dataclass(frozen=True, slots=True)
class Quality:
    """The health of every process that reports.

    Attributes:
        reporting: the newest process of each rank, if it is not silent.
        silent: the newest process of each rank, if it is. A process that another one replaced is not silent:
            it ended.
        without_counts: tokens were scheduled and no expert was counted.
        not_conserved: assignments do not match tokens × top-k × layers.
        export_failures: export attempts that were not acknowledged, over all processes; nothing is lost by
            one.
    """

    instances: tuple[InstanceHealth, ...]
    reporting: tuple[InstanceHealth, ...]
    silent: tuple[InstanceHealth, ...]
    without_counts: tuple[InstanceHealth, ...]
    not_conserved: tuple[InstanceHealth, ...]
    export_failures: int

    @property
    def is_believable(self) -> bool:
        """Whether something reports, and all that report add up."""
        return bool(self.reporting) and not (self.silent or self.without_counts or self.not_conserved)

    @property
    def last_ms(self) -> int | None:
        """End of the newest window of all, Unix milliseconds."""
        return max((instance.last_ms for instance in self.instances), default=None)

    @property
    def lag_seconds(self) -> float | None:
        """Time since the newest window of all ended."""
        return min((instance.lag_seconds for instance in self.instances), default=None)


def read_quality(store: Store, service: str = "") -> Quality:
    """Read the health of a deployment, or of all when ``service`` is empty.

    Raises:
        StoreError: the store cannot answer.
    """
    rows = store.query("telemetry_health", service=service).to_pylist()
    return judge_quality([InstanceHealth(**(row | {"state": HealthState(row["state"])})) for row in rows])


def judge_quality(instances: Sequence[InstanceHealth]) -> Quality:
    """Sort processes by what is wrong with them."""
    newest = _newest_of_each_rank(instances)
    return Quality(
        tuple(instances),
        tuple(one for one in newest if one.state is not HealthState.SILENT),
        tuple(one for one in newest if one.state is HealthState.SILENT),
        tuple(one for one in instances if one.state is HealthState.NO_COUNTS),
        tuple(one for one in instances if one.state is HealthState.NOT_CONSERVED),
        sum(one.export_failures for one in instances),
    )


def _newest_of_each_rank(instances: Iterable[InstanceHealth]) -> list[InstanceHealth]:
    newest: dict[tuple[str, str, int], InstanceHealth] = {}
    for one in sorted(instances, key=lambda one: one.last_ms):
        newest[one.service, one.ep_group, one.ep_rank] = one
    return sorted(newest.values(), key=lambda one: (one.service, one.ep_group, one.ep_rank))
