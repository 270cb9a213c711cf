"""Data quality, in sentences: what is missing is said, never left blank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from moescope.analysis import words
from moescope.analysis.finding import Finding, Severity, Subject
from moescope.analysis.quality import InstanceHealth, Quality
from moescope.schemas.attributes import Component

_BEFORE_ALL: Final = float("inf")
"""Whether the numbers can be believed comes before what they say."""


def list_quality_findings(quality: Quality) -> Iterator[Finding]:
    """Say who is silent, who counts nothing, whose counts do not add up, and what had to be sent again."""
    if quality.silent:
        yield (
            _nothing_new(quality)
            if not quality.reporting
            else _about_ranks(
                quality.silent, "silent; what the experts did for them is missing from every number"
            )
        )
    for component in sorted({one.component for one in quality.silent_others}):
        these = [one for one in quality.silent_others if one.component is component]
        yield _about_ranks(these, "silent; what it reports is missing", component)
    if quality.without_counts:
        yield _about_ranks(quality.without_counts, "counting no experts although tokens are scheduled")
    if quality.not_conserved:
        yield _not_conserved(quality.not_conserved)
    for shared in quality.sharing_id:
        yield _shared_id(shared)
    for one, lead in quality.clock_leads:
        yield _clock_ahead(one, lead)
    if quality.export_failures:
        yield Finding(
            Severity.NOTE,
            f"Not acknowledged at first: {words.count(quality.export_failures, 'export attempt')}.",
            "Nothing was lost: a window is kept and sent again until the store has it.",
            0.0,
            quality.instances[0].service,
            subject=Subject.QUALITY,
        )


def _nothing_new(quality: Quality) -> Finding:
    """Of windows, not of arrivals: a window sent late is old when it arrives."""
    service = quality.silent[0].service
    return Finding(
        Severity.PROBLEM,
        f"The newest window of {service} is {words.duration(quality.lag_seconds or 0)} old.",
        "The pages show the newest that is stored; while kept windows are sent late, they catch up. "
        "Otherwise: is the engine running, and its endpoint reachable? `moescope doctor` checks both.",
        _BEFORE_ALL,
        service,
        subject=Subject.QUALITY,
    )


def _not_conserved(instances: Sequence[InstanceHealth]) -> Finding:
    missing = sum(one.missing_assignments for one in instances)
    expected = sum(one.expected_assignments for one in instances)
    off = f"{words.integer(abs(missing))} assignments ({words.percent(abs(missing) / max(expected, 1))})"
    return _about_ranks(instances, f"off by {off}, {'too few' if missing > 0 else 'too many'}")


def _shared_id(these: Sequence[InstanceHealth]) -> Finding:
    first = these[0]
    ranks = words.listed("rank", sorted({one.ep_rank for one in these}))
    return Finding(
        Severity.PROBLEM,
        f"{ranks} of {first.service} report under one instance id.",
        f"Both say that they are {first.instance}: what one of them counts can pass for the other's. Give "
        "each process a `service.instance.id` of its own; without one in `OTEL_RESOURCE_ATTRIBUTES` moescope "
        "makes it.",
        _BEFORE_ALL,
        first.service,
        subject=Subject.QUALITY,
    )


def _clock_ahead(one: InstanceHealth, lead: float) -> Finding:
    return Finding(
        Severity.PROBLEM,
        f"The clock of rank {one.ep_rank} of {one.service} is about {words.duration(lead)} ahead.",
        "Its newest window ends so long after those of most of its EP group; what it counted stands beside "
        "another time of theirs. Synchronise its host's clock (NTP or PTP).",
        _BEFORE_ALL,
        one.service,
        rank=one.ep_rank,
        subject=Subject.QUALITY,
    )


def _about_ranks(
    instances: Sequence[InstanceHealth], what: str, component: Component = Component.RANK
) -> Finding:
    ranks = sorted({one.ep_rank for one in instances})
    who = words.listed(component.value, ranks)
    newest = max(instances, key=lambda one: one.last_ms)
    return Finding(
        Severity.PROBLEM,
        f"{who} of {newest.service} {'is' if len(ranks) == 1 else 'are'} {what}.",
        f"The newest window is {words.duration(newest.lag_seconds)} old. "
        "`moescope report quality` lists every process.",
        _BEFORE_ALL,
        newest.service,
        subject=Subject.QUALITY,
    )
