"""What the reports of a span share: whose it is, and the words when there is nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from moescope.analysis import words
from moescope.analysis.expert_load import from_ms
from moescope.analysis.span import Span

UNKNOWN: Final = "–"
_NOTHING: Final = (
    "No telemetry is stored{of}. Start `moescope simulate`, or instrument an engine; "
    "`moescope doctor` says what is missing."
)


class SpanAnswer(Protocol):
    """One section of a report."""

    @property
    def span(self) -> Span:
        """Whose numbers they are, and of when."""

    def lines(self, width: int) -> Iterator[str]:
        """Its lines for a terminal of that width."""


_Answer = TypeVar("_Answer", bound=SpanAnswer)


def print_spans(answers: Sequence[_Answer], service: str | None, width: int) -> str:
    """A headed section for each answer, or what to do when there is none."""
    if not answers:
        return textwrap.fill(_NOTHING.format(of=f" of {service}" if service else ""), width)
    return "\n\n".join("\n".join([_heading(one.span), *one.lines(width)]) for one in answers)


def describe_span(span: Span) -> dict[str, Any]:
    """Whose numbers these are, and of when; times in UTC. ``ep_group`` is null where all are meant."""
    return {
        "service": span.service,
        "ep_group": span.ep_group or None,
        "start": from_ms(span.start_ms).isoformat(),
        "end": span.end.isoformat(),
        "step_seconds": span.step_seconds,
    }


def json_number(value: float | None) -> float | None:
    """A number that JSON can carry: null for what is not known."""
    return None if value is None or np.isnan(value) else float(value)


def _heading(span: Span) -> str:
    group = f", EP group {span.ep_group}" if span.ep_group else ""
    return f"{span.service}{group}: {words.duration(span.seconds)} to {span.end:%Y-%m-%d %H:%M:%S} UTC"
