"""What the reports of expert load share: headings, and the words when there is nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment

DEFAULT_WIDTH: Final = 100
DEFAULT_LIMIT: Final = 20
_NOTHING: Final = (
    "No expert load is stored{of}. Start `moescope simulate`, or instrument an engine; "
    "`moescope doctor` says what is missing."
)


def print_sections(
    assessments: Sequence[LoadAssessment],
    service: str | None,
    section: Callable[[LoadAssessment], Iterator[str]],
) -> str:
    """A headed section for each scope, or what to do when there is none."""
    if not assessments:
        return print_nothing(service)
    return "\n\n".join("\n".join([_heading(one), *section(one)]) for one in assessments)


def _heading(assessment: LoadAssessment) -> str:
    scope, window = assessment.window.scope, assessment.window
    return (
        f"{scope.service}, EP group {scope.ep_group}, {scope.phase.value}: "
        f"{words.duration(window.seconds)} to {window.end:%Y-%m-%d %H:%M:%S} UTC"
    )


def print_nothing(service: str | None) -> str:
    """Say that nothing is stored, and how something gets there."""
    return textwrap.fill(_NOTHING.format(of=f" of {service}" if service else ""), DEFAULT_WIDTH)


def describe_scope(assessment: LoadAssessment) -> dict[str, Any]:
    """Whose numbers these are, and of when; times in UTC."""
    scope, window = assessment.window.scope, assessment.window
    return {
        "service": scope.service,
        "ep_group": scope.ep_group,
        "phase": scope.phase.value,
        "start": window.start.isoformat(),
        "end": window.end.isoformat(),
        "interval_seconds": window.tier.interval_seconds,
        "assignments": int(window.tokens.sum()),
    }
