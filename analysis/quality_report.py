"""Data quality, printed."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any, Final

from moescope.analysis import words
from moescope.analysis.quality import HealthState, InstanceHealth, Quality
from moescope.analysis.report_sections import DEFAULT_WIDTH, print_nothing
from moescope.analysis.text_table import Column, render_table

_COLUMNS: Final = (
    *(Column("service", left=True), Column("group"), Column("rank"), Column("instance", left=True)),
    *(Column("last window"), Column("tokens"), Column("assignments"), Column("missing")),
    *(Column("refused"), Column("state", left=True)),
)


@dataclass(frozen=True, slots=True)
class QualityReport:
    """Whether the numbers can be believed, process by process."""

    quality: Quality
    service: str | None

    @property
    def has_problem(self) -> bool:
        """Whether something is missing, silent, or does not add up."""
        return not self.quality.is_believable

    def to_text(self, width: int = DEFAULT_WIDTH) -> str:
        """A table for a terminal of that width."""
        if not self.quality.instances:
            return print_nothing(self.service)
        q = self.quality
        summary = (
            f"{words.count(len(q.reporting), 'rank')} reporting, {len(q.silent)} silent, "
            f"{len(q.without_counts)} without counts, {len(q.not_conserved)} not conserved; "
            f"{words.count(q.export_failures, 'refused export')}, "
            f"{words.count(len(q.sharing_id), 'shared instance id')}, "
            f"{words.count(len(q.clock_leads), 'clock')} ahead. "
            "Missing: tokens × top-k × layers − counted; a step under way may be missing for one window."
        )
        rows = [_health_row(one) for one in sorted(q.instances, key=_worst_first)]
        return f"{textwrap.fill(summary, width)}\n{render_table(_COLUMNS, rows, width)}"

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape: counts and ``instances[]``, times in UTC."""
        q = self.quality
        return {
            "believable": q.is_believable,
            "reporting": len(q.reporting),
            "silent": len(q.silent),
            "without_counts": len(q.without_counts),
            "not_conserved": len(q.not_conserved),
            "export_failures": q.export_failures,
            "sharing_id": sum(len(these) for these in q.sharing_id),
            "clocks_ahead": len(q.clock_leads),
            "instances": [_health_dict(one) for one in q.instances],
        }


def _worst_first(one: InstanceHealth) -> tuple[bool, str, str, int]:
    return (one.state in {HealthState.OK, HealthState.LEFT}, one.service, one.ep_group, one.ep_rank)


def _health_row(one: InstanceHealth) -> list[str]:
    return [
        one.service,
        one.ep_group,
        str(one.ep_rank) if one.is_rank else f"{one.ep_rank} {one.component.value}",
        one.instance[:8],
        f"{words.duration(one.lag_seconds)} ago",
        words.integer(one.tokens),
        words.integer(one.assignments),
        words.integer(one.missing_assignments),
        words.integer(one.export_failures),
        one.state.value,
    ]


def _health_dict(one: InstanceHealth) -> dict[str, Any]:
    return {
        "service": one.service,
        "instance": one.instance,
        "component": one.component.value,
        "ep_group": one.ep_group,
        "ep_rank": one.ep_rank,
        "last_seen": one.last_seen.isoformat(),
        "lag_seconds": one.lag_seconds,
        "windows": one.windows,
        "tokens": one.tokens,
        "excluded_tokens": one.excluded_tokens,
        "assignments": one.assignments,
        "expected_assignments": one.expected_assignments,
        "missing_assignments": one.missing_assignments,
        "export_failures": one.export_failures,
        "state": one.state.value,
    }
