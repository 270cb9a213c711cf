"""Stragglers, printed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.expert_load import from_ms
from moescope.analysis.report_sections import DEFAULT_WIDTH
from moescope.analysis.silent_ranks import describe_silent_ranks, read_silent_ranks
from moescope.analysis.span import Span
from moescope.analysis.span_sections import UNKNOWN, describe_span, json_number, print_spans
from moescope.analysis.store import Store
from moescope.analysis.straggler import Straggler
from moescope.analysis.straggler_evidence import StragglerEvidence, StragglerRules
from moescope.analysis.straggler_gaps import list_gaps
from moescope.analysis.straggler_ranks import RankSigns, can_judge, list_rank_signs
from moescope.analysis.straggler_reader import read_straggler_evidence
from moescope.analysis.straggler_signals import read_signs
from moescope.analysis.straggler_words import cost_sentence, title, when_sentence
from moescope.analysis.stragglers import find_stragglers
from moescope.analysis.text_table import Column, render_table
from moescope.schemas.attributes import DispatchStage
from moescope.schemas.settings import Settings

_COLUMNS: Final = (
    *(Column("rank"), Column("host", left=True), Column("dispatch"), Column("combine")),
    *(Column("costs others"), Column("time at load"), Column("load")),
)
_LEGEND: Final = (
    "dispatch, combine: what the others wait for the rank over the usual wait for one; time at load: its "
    "experts over what other ranks need for the same load; load: over the median rank's."
)


@dataclass(frozen=True, slots=True)
class StragglerAnswer:
    """What the ranks of one EP group wait for.

    Attributes:
        stragglers: what is named, the costliest first.
        ranks: those that are waited for longest.
        gaps: what could not be known, sentences.
        is_judged: False where nothing is known that tells one rank's lateness from another's.
        num_ranks: how many were compared; ``num_windows`` likewise, of ``window_seconds`` each.
    """

    span: Span
    stragglers: tuple[Straggler, ...]
    ranks: tuple[RankSigns, ...]
    gaps: tuple[str, ...]
    is_judged: bool
    num_ranks: int
    num_windows: int
    window_seconds: float

    @property
    def verdict(self) -> str:
        """What is said where nothing is named: that nobody is late, or that it cannot be told."""
        compared = f"{words.count(self.num_ranks, 'rank')} in {words.count(self.num_windows, 'window')}"
        verdict = "Nobody is waited for unusually long" if self.is_judged else "Who is late cannot be told"
        return f"{verdict}: {compared} of {self.window_seconds / 60:g} min."

    def lines(self, width: int) -> Iterator[str]:
        """See :class:`~moescope.analysis.span_sections.SpanAnswer`."""
        for one in self.stragglers:
            yield textwrap.fill(title(one), width)
            said = f"{when_sentence(one)} {cost_sentence(one)}".strip()
            for sentence in (said, " ".join(one.evidence), one.advice):
                yield textwrap.fill(sentence, width, initial_indent="  ", subsequent_indent="  ")
        if not self.stragglers:
            yield self.verdict
        if self.ranks:
            yield ""
            yield render_table(_COLUMNS, [_row(one) for one in self.ranks], width)
            yield textwrap.fill(_LEGEND, width)
        for gap in self.gaps:
            yield textwrap.fill(f"Not known: {gap}", width, subsequent_indent="  ")

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape of one EP group."""
        return describe_span(self.span) | {
            "is_judged": self.is_judged,
            "window_seconds": self.window_seconds,
            "windows": self.num_windows,
            "stragglers": [_straggler_dict(one) for one in self.stragglers],
            "ranks": [_rank_dict(one) for one in self.ranks],
            "not_known": list(self.gaps),
        }


@dataclass(frozen=True, slots=True)
class StragglerReport:
    """The stragglers of every EP group."""

    answers: tuple[StragglerAnswer, ...]
    service: str | None

    @property
    def has_problem(self) -> bool:
        """Whether anything is named."""
        return any(answer.stragglers for answer in self.answers)

    def to_text(self, width: int = DEFAULT_WIDTH) -> str:
        """Sentences and a table for a terminal of that width."""
        return print_spans(self.answers, self.service, width)

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape: ``groups[] → stragglers[], ranks[], not_known[]``."""
        return {"groups": [answer.to_dict() for answer in self.answers]}


def read_straggler_answer(store: Store, span: Span, settings: Settings, limit: int) -> StragglerAnswer:
    """Look for what the ranks of one EP group wait for; of the others, the ``limit`` most awaited are shown.

    Raises:
        StoreError: the store cannot answer.
    """
    evidence = read_straggler_evidence(store, span, settings)
    silent = read_silent_ranks(store, span.service, span.ep_group, settings)
    return answer_from(span, evidence, StragglerRules.of(settings), limit, silent)


def answer_from(
    span: Span,
    evidence: StragglerEvidence,
    rules: StragglerRules,
    limit: int,
    silent_ranks: tuple[int, ...] = (),
) -> StragglerAnswer:
    """Decide and describe what was read; nobody waits for ``silent_ranks``, so they are no stragglers."""
    signs = read_signs(evidence, rules)
    found = find_stragglers(evidence, rules, signs)
    named = {rank for one in found for rank in one.ranks}
    return StragglerAnswer(
        span,
        found,
        () if signs is None else list_rank_signs(evidence, signs, rules, limit, named),
        (*_gone(silent_ranks), *list_gaps(evidence, signs, rules)),
        *(can_judge(evidence, signs), evidence.num_ranks, evidence.num_windows, evidence.window_seconds),
    )


def _gone(silent_ranks: tuple[int, ...]) -> Iterator[str]:
    if silent_ranks:
        yield (
            f"{describe_silent_ranks(silent_ranks)}, which no wait shows: `moescope report failover --rank "
            f"{silent_ranks[0]}` says what went with it."
        )


def _row(one: RankSigns) -> list[str]:
    return [
        str(one.rank),
        one.host or UNKNOWN,
        *(_times(one.times_awaited.get(stage, np.nan)) for stage in DispatchStage),
        UNKNOWN if np.isnan(one.lost_share) else words.percent(one.lost_share),
        *(_times(one.time_at_load), _times(one.load_of_median)),
    ]


def _times(value: float) -> str:
    return UNKNOWN if np.isnan(value) else f"{value:.2f} ×" if value < 10 else f"{words.compact(value)} ×"


def _rank_dict(one: RankSigns) -> dict[str, Any]:
    return {
        "ep_rank": one.rank,
        "host": one.host or None,
        "dispatch_wait_ratio": json_number(one.times_awaited.get(DispatchStage.DISPATCH)),
        "combine_wait_ratio": json_number(one.times_awaited.get(DispatchStage.COMBINE)),
        "lost_share": json_number(one.lost_share),
        "expert_time_ratio": json_number(one.time_at_load),
        "load_ratio": json_number(one.load_of_median),
    }


def _straggler_dict(one: Straggler) -> dict[str, Any]:
    return {
        "kind": one.kind.value,
        "ep_ranks": list(one.ranks),
        "node": one.node,
        "times_others": one.times_others,
        "says": one.says,
        "load_ratio": one.load_of_median,
        "windows": one.windows,
        "judged_windows": one.judged_windows,
        "all_late_windows": one.all_late,
        "all_windows": one.all_windows,
        "since": from_ms(one.since_ms).isoformat(),
        "cost_seconds_per_minute": one.cost_seconds_per_minute,
        "lost_share": one.lost_share,
        "share_of_waiting": one.share_of_waiting,
        "confidence": one.confidence.name.lower(),
        "evidence": list(one.evidence),
        "advice": one.advice,
    }
