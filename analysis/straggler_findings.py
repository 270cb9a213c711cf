"""Stragglers as findings: what the overview says of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moescope.analysis.finding import Finding, Severity, Subject
from moescope.analysis.span import Span
from moescope.analysis.straggler import Confidence, Straggler
from moescope.analysis.straggler_report import StragglerAnswer
from moescope.analysis.straggler_words import cost_sentence, title, when_sentence


def list_straggler_findings(answers: Iterable[StragglerAnswer]) -> Iterator[Finding]:
    """One for each thing that the others wait for: a problem, or a warning where that is not sure."""
    answers = tuple(answers)
    names_group = len({answer.span.ep_group for answer in answers}) > 1
    for answer in answers:
        for one in answer.stragglers:
            yield _finding(one, answer.span, names_group=names_group)


def _finding(one: Straggler, span: Span, *, names_group: bool) -> Finding:
    where = f"EP group {span.ep_group}: " if names_group else ""
    parts = when_sentence(one), cost_sentence(one), *one.evidence, one.advice
    detail = " ".join(part for part in parts if part)
    return Finding(
        Severity.WARNING if one.confidence is Confidence.LOW else Severity.PROBLEM,
        where + title(one),
        detail,
        # Beside a net imbalance ratio: how many times as long the others take because of it.
        1 / (1 - min(one.lost_share or 0.0, 0.9)),
        span.service,
        span.ep_group or None,
        rank=one.rank,
        subject=Subject.RANKS,
    )
