"""A plan of a stored group, as a page asks for it, and as a command line that asks for the same."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from moescope.analysis.replication import CoverNodes
from moescope.analysis.store import Store
from moescope.planning.amounts import parse_bytes, parse_move_limit
from moescope.planning.load import PlanLoad
from moescope.planning.request import OutputFormat, PlanRequest
from moescope.planning.stored_load import STORED_WINDOWS, Whose, read_stored_load, seconds_of_each
from moescope.schemas.settings import Settings

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """Whose load is planned for, and of when.

    Attributes:
        phase: ``prefill`` or ``decode``; None: both together, for they share one placement.
        window_seconds: how far to look back.
        end_ms: from when, Unix milliseconds; None: from the newest.
    """

    service: str
    ep_group: str
    phase: str | None
    window_seconds: int
    end_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuestion:
    """A plan that is asked for, in the words of ``moescope plan``; None where an option is left out."""

    group: StoredGroup
    redundant_experts: int | None = None
    max_moved: str | None = None
    memory_budget: str | None = None
    cover_nodes: CoverNodes = CoverNodes.NONE

    def request(self) -> PlanRequest:
        """What is asked of the plan.

        Raises:
            UsageError: options that exclude each other; the message names them.
        """
        moved, budget = self.max_moved, self.memory_budget
        return PlanRequest(
            redundant_experts=self.redundant_experts,
            max_moved=None if moved is None else parse_move_limit(moved),
            memory_budget_bytes=None if budget is None else parse_bytes("--memory-budget", budget),
            cover_nodes=self.cover_nodes,
        )

    def command(self, output_format: OutputFormat = OutputFormat.TEXT, file: str = "") -> str:
        """The command line that makes the same plan of the same windows, and writes it to ``file``."""
        return shlex.join(["moescope", "plan", *self._words(output_format, file)])

    def until(self, end_ms: int | None) -> PlanQuestion:
        """The same about windows that end at a certain time."""
        return replace(self, group=replace(self.group, end_ms=end_ms))

    def _words(self, output_format: OutputFormat, file: str) -> Iterator[str]:
        group = self.group
        yield from ("--service", group.service, "--ep-group", group.ep_group)
        if group.phase is not None:
            yield from ("--phase", group.phase)
        yield from ("--window", spell_duration(group.window_seconds))
        if group.end_ms is not None:
            yield from ("--until", spell_time(group.end_ms))
        if self.redundant_experts is not None:
            yield from ("--redundant-experts", str(self.redundant_experts))
        if self.max_moved is not None:
            yield from ("--max-moved", self.max_moved)
        if self.memory_budget is not None:
            yield from ("--memory-budget", self.memory_budget)
        if self.cover_nodes is not CoverNodes.NONE:
            yield from ("--cover-nodes", self.cover_nodes.value)
        if output_format is not OutputFormat.TEXT:
            yield from ("--format", output_format.value)
        if file:
            yield from ("--output", file)


def read_load_of(store: Store, settings: Settings, group: StoredGroup) -> PlanLoad:
    """Read what ``moescope plan`` would read.

    Raises:
        UsageError: nothing of it is stored.
        StoreError: the store cannot answer.
    """
    return read_stored_load(
        store,
        settings,
        Whose(service=group.service, ep_group=group.ep_group, phase=group.phase),
        window_seconds=seconds_of_each(group.window_seconds, STORED_WINDOWS),
        count=STORED_WINDOWS,
        end_ms=group.end_ms,
    )


def spell_duration(seconds: int) -> str:
    """``15m``, ``6h``, ``7d``, ``90s``: in the largest unit that makes it whole."""
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds % size == 0), (1, "s"))
    return f"{seconds // size}{unit}"


def spell_time(unix_ms: int) -> str:
    """``2026-03-01T12:30:00Z``, with milliseconds where there are any."""
    moment = datetime.fromtimestamp(unix_ms / 1000, UTC)
    precision = "milliseconds" if unix_ms % 1000 else "seconds"
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")
