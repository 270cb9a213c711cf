"""Whose telemetry is stored, whatever kind it is, and the stretch of it that somebody looks at."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

import numpy as np

from moescope.analysis.expert_load import LoadScope, TimeArray, from_ms, list_scopes
from moescope.analysis.store import Store
from moescope.schemas.errors import UsageError
from moescope.schemas.records import FloatArray
from moescope.schemas.settings import Settings

_MS: Final = 1000
_MINUTE_MS: Final = 60 * _MS
_STEPS_SECONDS: Final = (60, 300, 1_800, 3_600, 10_800)
_MAX_STEPS: Final = 400
_RECENT_HOURS: Final = Settings().raw_ttl_hours
"""Who sends no expert load is known this long after the last window."""


@dataclass(frozen=True, slots=True)
class Reporters:
    """The processes of one EP group that report, as ``queries/deployments.sql`` describes them.

    Attributes:
        first_ms: middle of their first window, Unix milliseconds.
        last_ms: end of their newest one, now at most.
    """

    service: str
    ep_group: str
    first_ms: int
    last_ms: int


_Row = TypeVar("_Row", LoadScope, Reporters)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment of which anything is stored.

    Attributes:
        ep_groups: its EP groups, in the order of their names.
        first_ms: start of the first minute that is stored, Unix milliseconds.
        end_ms: end of the newest minute.
        last_ms: end of the newest window; the newest minute is still running until ``end_ms``.
    """

    service: str
    ep_groups: tuple[str, ...]
    first_ms: int
    end_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time of one deployment, in steps of whole minutes.

    Attributes:
        ep_group: one EP group, or empty for all of them.
        start_ms, end_ms: whole steps from the start on; Unix milliseconds, end excluded.
        covered_ms: until when there is data, at most ``end_ms``.
        step_seconds: length of a step; no more than a few hundred of them.
    """

    service: str
    ep_group: str
    start_ms: int
    end_ms: int
    covered_ms: int
    step_seconds: int

    @property
    def seconds(self) -> float:
        """How long the data covers."""
        return max(self.covered_ms - self.start_ms, 0) / _MS

    @property
    def end(self) -> datetime:
        """End of what is covered, UTC."""
        return from_ms(self.covered_ms)

    def params(self) -> dict[str, str | int]:
        """The parameters that every query of a span takes."""
        return {
            "service": self.service,
            "ep_group": self.ep_group,
            "start_ms": self.start_ms,
            "end_ms": self.end_ms,
        }

    def seconds_of_steps(self, times: TimeArray) -> FloatArray:
        """How much of each step the data covers, seconds ``[steps]``: the newest one is still running."""
        starts = times.astype("datetime64[ms]").astype(np.int64)
        ends = np.minimum(starts + self.step_seconds * _MS, max(self.covered_ms, self.start_ms))
        seconds: FloatArray = np.maximum(ends - np.maximum(starts, self.start_ms), _MS) / _MS
        return seconds


def list_deployments(store: Store) -> tuple[Deployment, ...]:
    """List every deployment that sends or sent anything, with or without expert load.

    Raises:
        StoreError: the store cannot answer.
    """
    rows = store.query("deployments", hours=_RECENT_HOURS).to_pylist()
    return merge_deployments(list_scopes(store), [Reporters(**row) for row in rows])


def plan_options(service: str, ep_group: str) -> str:
    """How ``moescope plan`` is told of one EP group, whatever else is stored."""
    return f"--service {shlex.quote(service)} --ep-group {shlex.quote(ep_group)}"


def check_service(store: Store, service: str | None) -> None:
    """Refuse the name of a deployment that is not stored, where others are.

    Raises:
        StoreError: the store cannot answer.
        UsageError: it is not stored; the message names those that are.
    """
    if service is None:
        return
    names = [one.service for one in list_deployments(store)]
    if names and service not in names:
        raise UsageError(f"--service {service}: nothing is stored of it; stored are: {', '.join(names)}")


def merge_deployments(scopes: Iterable[LoadScope], reporters: Iterable[Reporters]) -> tuple[Deployment, ...]:
    """Put together who is known by its expert load and who by its processes."""
    loads, processes = _by_service(scopes), _by_service(reporters)
    return tuple(
        _merge(service, loads.get(service, []), processes.get(service, []))
        for service in sorted({*loads, *processes})
    )


def cover(
    deployment: Deployment, window_seconds: float, *, end_ms: int | None = None, ep_group: str = ""
) -> Span:
    """The last ``window_seconds`` before ``end_ms``, before the newest minute's end if None."""
    end_ms = min(end_ms or deployment.end_ms, deployment.end_ms)
    start_ms = max(end_ms - max(int(window_seconds * _MS), _MINUTE_MS), deployment.first_ms)
    step_seconds = choose_step(end_ms - start_ms)
    step_ms = step_seconds * _MS
    return Span(
        *(deployment.service, ep_group, start_ms // step_ms * step_ms, end_ms),
        *(min(end_ms, deployment.last_ms), step_seconds),
    )


def span_between(service: str, ep_group: str, start_ms: int, end_ms: int) -> Span:
    """All of a stretch of time that has data throughout, from the step that holds its start on."""
    step_seconds = choose_step(end_ms - start_ms)
    step_ms = step_seconds * _MS
    return Span(service, ep_group, start_ms // step_ms * step_ms, end_ms, end_ms, step_seconds)


def choose_step(length_ms: int) -> int:
    """Seconds of a step: the shortest that makes at most a few hundred of them."""
    return next((step for step in _STEPS_SECONDS if length_ms <= step * _MS * _MAX_STEPS), _STEPS_SECONDS[-1])


def _merge(service: str, loads: list[LoadScope], processes: list[Reporters]) -> Deployment:
    first = [load.first_ms for load in loads] + [one.first_ms for one in processes]
    ends = [load.end_ms for load in loads] + [_minute_end(one.last_ms) for one in processes]
    last = [one.last_ms for one in processes] or ends
    groups = {load.ep_group for load in loads} | {one.ep_group for one in processes}
    return Deployment(
        service, tuple(sorted(groups)), min(first) // _MINUTE_MS * _MINUTE_MS, max(ends), max(last)
    )


def _by_service(rows: Iterable[_Row]) -> dict[str, list[_Row]]:
    found: dict[str, list[_Row]] = {}
    for row in rows:
        found.setdefault(row.service, []).append(row)
    return found


def _minute_end(unix_ms: int) -> int:
    return -(-unix_ms // _MINUTE_MS) * _MINUTE_MS
