"""Can the numbers be believed? Who reports, who fell silent, and whether the counts add up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from moescope.analysis.expert_load import from_ms
from moescope.analysis.process_identity import find_shared_ids, measure_clock_leads
from moescope.analysis.store import Store
from moescope.analysis.vocabulary import known_rows
from moescope.schemas.attributes import Component


class HealthState(StrEnum):
    """What the view ``telemetry_health`` says of an engine process."""

    OK = "ok"
    SILENT = "silent"
    LEFT = "left"
    NO_COUNTS = "no counts"
    NOT_CONSERVED = "not conserved"


_GONE: Final = frozenset({HealthState.SILENT, HealthState.LEFT})


@dataclass(frozen=True, slots=True)
class InstanceHealth:
    """One process, as ``queries/telemetry_health.sql`` describes it."""

    service: str
    instance: str
    component: Component
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
    export_seconds: float = -1.0
    most_waiting_bytes: int = 0

    @property
    def is_rank(self) -> bool:
        """Whether it holds experts."""
        return self.component is Component.RANK

    @property
    def has_problem(self) -> bool:
        """Whether its state is a finding. One that left was replaced, and is none."""
        return self.state not in {HealthState.OK, HealthState.LEFT}

    @property
    def reconciliation(self) -> str:
        """Whether its assignments are its tokens × top-k × layers, in a word; empty where it counts none."""
        if not (self.is_rank and self.expected_assignments):
            return ""
        return "no" if self.state in {HealthState.NO_COUNTS, HealthState.NOT_CONSERVED} else "yes"

    @property
    def last_seen(self) -> datetime:
        """End of its last window, UTC."""
        return from_ms(self.last_ms)


@dataclass(frozen=True, slots=True)
class Quality:
    """The health of every process that reports.

    Attributes:
        reporting: the newest process of each rank, if it still reports.
        silent: the newest process of each rank, if it fell silent. One that another process replaced, and one
            whose group came back smaller, is not silent: it left.
        silent_others: the newest of each scheduler, front end and scraper, if it fell silent.
        without_counts: tokens were scheduled and no expert was counted.
        not_conserved: assignments do not match tokens × top-k × layers.
        export_failures: export attempts that were not acknowledged, over all processes; nothing is lost by
            one.
        sharing_id: ranks that report under one instance id at the same time, id by id.
        clock_leads: ranks whose clock is ahead of their EP group's, and by how many seconds.
    """

    instances: tuple[InstanceHealth, ...]
    reporting: tuple[InstanceHealth, ...]
    silent: tuple[InstanceHealth, ...]
    silent_others: tuple[InstanceHealth, ...]
    without_counts: tuple[InstanceHealth, ...]
    not_conserved: tuple[InstanceHealth, ...]
    export_failures: int
    sharing_id: tuple[tuple[InstanceHealth, ...], ...] = ()
    clock_leads: tuple[tuple[InstanceHealth, float], ...] = ()

    @property
    def is_believable(self) -> bool:
        """Whether something reports, all that report add up, and who counted what and when is clear."""
        wrong = (self.silent, self.silent_others, self.without_counts, self.not_conserved)
        unclear = (self.sharing_id, self.clock_leads)
        return not any((*wrong, *unclear)) and any(one.state is HealthState.OK for one in self.instances)

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
    known = known_rows(known_rows(rows, "component", Component), "state", HealthState)
    return judge_quality([_instance(row) for row in known])


def _instance(row: dict[str, Any]) -> InstanceHealth:
    words = {"state": HealthState(row["state"]), "component": Component(row["component"])}
    return InstanceHealth(**(row | words))


def judge_quality(instances: Sequence[InstanceHealth]) -> Quality:
    """Sort processes by what is wrong with them."""
    newest = _newest_of_each(instances)
    silent = [one for one in newest if one.state is HealthState.SILENT]
    reporting = tuple(one for one in newest if one.is_rank and one.state not in _GONE)
    return Quality(
        tuple(instances),
        reporting,
        tuple(one for one in silent if one.is_rank),
        tuple(one for one in silent if not one.is_rank),
        tuple(one for one in instances if one.state is HealthState.NO_COUNTS),
        tuple(one for one in instances if one.state is HealthState.NOT_CONSERVED),
        sum(one.export_failures for one in instances),
        find_shared_ids(reporting),
        measure_clock_leads(reporting),
    )


def _newest_of_each(instances: Iterable[InstanceHealth]) -> list[InstanceHealth]:
    newest: dict[tuple[str, str, int, Component], InstanceHealth] = {}
    for one in sorted(instances, key=lambda one: one.last_ms):
        newest[one.service, one.ep_group, one.ep_rank, one.component] = one
    return [newest[key] for key in sorted(newest)]
