"""What would be lost with each rank and node, printed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.failover_advice import advise
from moescope.analysis.failover_dicts import group_dict, holders_dict, loss_dict
from moescope.analysis.failover_facts import FailoverFacts
from moescope.analysis.failover_holders import Holders
from moescope.analysis.failover_losses import Loss
from moescope.analysis.failover_words import (
    RATIO_FORMULA,
    describe_group,
    describe_holders,
    describe_loss,
    name_of,
)
from moescope.analysis.front_ends import FrontEnd
from moescope.analysis.partial_failure_answer import SlowAnswer
from moescope.analysis.report_sections import DEFAULT_WIDTH
from moescope.analysis.silent_ranks import describe_silent_ranks
from moescope.analysis.span import Span
from moescope.analysis.span_sections import print_spans
from moescope.analysis.text_table import Column, render_table

_COLUMNS: Final = (
    *(Column("lost", left=True), Column("experts lost"), Column("copied"), Column("traffic")),
    *(Column("tokens hit"), Column("own work"), Column("busiest survivor"), Column("imbalance")),
)
_INDENT: Final = "  "


@dataclass(frozen=True, slots=True)
class FailoverAnswer:
    """One EP group.

    Attributes:
        facts: what was read.
        ranks, nodes: N − 1, the worst first; empty where one loss is asked for.
        focus: the losses that are told in sentences.
        holders: who holds the expert that was asked for.
        slow: a rank that is slow; None where nobody asked.
        front_ends: who takes the requests.
        acceptable_share: part of the traffic that one rank may take with it.
        limit: most rows of a table.
    """

    facts: FailoverFacts
    ranks: tuple[Loss, ...]
    nodes: tuple[Loss, ...]
    focus: tuple[Loss, ...]
    holders: Holders | None
    slow: SlowAnswer | None
    front_ends: tuple[FrontEnd, ...]
    acceptable_share: float
    limit: int

    @property
    def span(self) -> Span:
        """Whose numbers they are, and of when."""
        return self.facts.span

    @property
    def has_problem(self) -> bool:
        """Whether a single rank takes more of the traffic with it than is acceptable.

        A group of one rank has no choice, and a node is as many ranks as it has.
        """
        single = [loss for loss in (*self.ranks, *self.focus) if loss.node is None and len(loss.ranks) == 1]
        return len(self.facts.ranks) > 1 and any(
            loss.traffic_share > self.acceptable_share for loss in single
        )

    @property
    def headline(self) -> str:
        """Whose loss would be worst; empty where one loss was asked for."""
        if not self.ranks:
            return ""
        if len(self.facts.ranks) == 1:
            return f"{name_of(self.ranks[0]).capitalize()} is alone: its loss is the loss of the service"
        verdict = "takes too much with it" if self.has_problem else "is the worst to lose"
        share = words.percent(self.ranks[0].traffic_share)
        return f"{name_of(self.ranks[0]).capitalize()} {verdict}: {share} of the traffic"

    def lines(self, width: int) -> Iterator[str]:
        """See :class:`~moescope.analysis.span_sections.SpanAnswer`."""
        yield textwrap.fill(describe_group(self.facts), width)
        yield from (textwrap.fill(note, width) for note in self.notes())
        if self.holders is not None:
            yield textwrap.fill(describe_holders(self.holders, self.facts), width)
        if self.ranks:
            yield from self._table(width)
        for loss in self.focus:
            title, *paragraphs = describe_loss(loss, self.facts, self.holders)
            yield from ("", title, *_indented([*paragraphs, *advise(loss, self.facts)], width))
        if self.slow is not None:
            title, *paragraphs = self.slow.lines()
            yield from ("", textwrap.fill(title, width), *_indented(paragraphs, width))
        yield from (textwrap.fill(line, width) for line in ("", self.front_end_line()))

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape of one EP group."""
        return group_dict(self.facts) | {
            "has_problem": self.has_problem,
            "ranks": [loss_dict(loss) for loss in self.ranks],
            "nodes": [loss_dict(loss) for loss in self.nodes],
            "focus": [loss_dict(loss) for loss in self.focus],
            "advice": [sentence for loss in self.focus for sentence in advise(loss, self.facts)],
            "expert": None if self.holders is None else holders_dict(self.holders),
            "slow": None if self.slow is None else self.slow.to_dict(),
            "front_ends": [
                {"ep_group": one.ep_group, "host": one.host or None, "instance": one.instance}
                | {"requests": one.requests, "share": one.share}
                for one in self.front_ends
            ],
        }

    def notes(self) -> Iterator[str]:
        """Sentences on what the answer does not count: silent ranks, ranks without a placement, failovers."""
        silent, missing = self.facts.silent_ranks, self.facts.unplaced_ranks.tolist()
        if silent:
            yield self._silent(silent)
        if missing:
            yield f"{words.listed('rank', missing)} never said which experts they hold and are left out."
        if self.facts.failovers.total:
            reasons = ", ".join(
                f"{words.integer(number)} × {reason.value.replace('_', ' ')}"
                for reason, number in self.facts.failovers.by_reason.items()
            )
            yield f"Failovers are happening: in this window other copies stood in ({reasons})."

    def _silent(self, silent: tuple[int, ...]) -> str:
        them = "it" if len(silent) == 1 else "them"
        text = f"{describe_silent_ranks(silent)}. What follows counts {them} as "
        if np.isin(silent, self.facts.ranks).any():
            return (
                f"{text}alive; lost experts got no tokens since, so use a --window that reaches back before."
            )
        return f"{text}gone; --rank {silent[0]} says what went with it."

    def _table(self, width: int) -> Iterator[str]:
        losses = (*self.ranks[: self.limit], *(self.nodes if len(self.nodes) > 1 else ()))
        yield render_table(_COLUMNS, [_row(loss) for loss in losses], width)
        if len(self.ranks) > self.limit:
            more = words.count(len(self.ranks) - self.limit, "more rank")
            yield f"… and {more}, with less traffic to lose."
        strategy = next(iter(self.ranks[0].outcomes)).value
        yield textwrap.fill(
            "Copied: experts with another copy. Traffic: assignments to lost experts. Tokens hit: need one "
            "in some layer, draws and layers taken as independent. Own work: of requests that run on what is "
            f"lost. Survivor: load after over before; imbalance: {RATIO_FORMULA}; both under {strategy}. One "
            f"rank may take {words.percent(self.acceptable_share)} of the traffic "
            "(MOESCOPE_FAILOVER_LOST_SHARE).",
            width,
        )

    def front_end_line(self) -> str:
        """Who takes the requests, and what is turned away without the busiest of them."""
        if not self.front_ends:
            return "Front ends: none reports its requests, so what is turned away without it is not known."
        first, rest = self.front_ends[0], len(self.front_ends) - 1
        where = f" on {first.host}" if first.host else ""
        rate = words.compact(first.requests / max(self.span.seconds, 1.0))
        if not rest:
            return (
                f"Front end: one process{where}. While it is down, all requests are turned away, {rate} a "
                "second, and those that run have nobody to answer to."
            )
        return (
            f"Front ends: {rest + 1}. Without the busiest{where}, {words.percent(first.share)} of the "
            f"requests are turned away, {rate} a second, unless another takes them."
        )


@dataclass(frozen=True, slots=True)
class FailoverReport:
    """Failover of every EP group; ``unplaced`` are (deployment, EP group) that do not say who holds what."""

    answers: tuple[FailoverAnswer, ...]
    unplaced: tuple[tuple[str, str], ...]
    service: str | None
    acceptable_share: float

    @property
    def has_problem(self) -> bool:
        """Whether a single rank of any group takes too much of the traffic with it."""
        return any(answer.has_problem for answer in self.answers)

    def to_text(self, width: int = DEFAULT_WIDTH) -> str:
        """Sections for a terminal of that width."""
        parts = [
            textwrap.fill(
                f"{service}, EP group {group}: no rank says which experts it holds, so what is lost with it "
                "is not known.",
                width,
            )
            for service, group in self.unplaced
        ]
        if self.answers or not parts:
            parts.insert(0, print_spans(self.answers, self.service, width))
        return "\n\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape, see ``schemas/reports/failover.schema.json``."""
        return {
            "formula": {"ratio": RATIO_FORMULA},
            "acceptable_share": self.acceptable_share,
            "groups_without_placement": [
                {"service": service, "ep_group": group} for service, group in self.unplaced
            ],
            "groups": [answer.to_dict() for answer in self.answers],
        }


def _row(loss: Loss) -> list[str]:
    outcome = next(iter(loss.outcomes.values()))
    survivor = "–" if outcome.busiest_rank is None else f"rank {outcome.busiest_rank} × {outcome.growth:.2f}"
    return [
        loss.node or name_of(loss),  # names of machines are long, and only their ends differ
        words.integer(loss.lost_experts),
        words.integer(loss.covered_experts),
        words.percent(loss.traffic_share),
        words.percent(loss.tokens_hit.expected),
        words.percent(loss.own_share),
        survivor,
        "–" if outcome.busiest_rank is None else f"{outcome.ratio_after:.2f}",
    ]


def _indented(paragraphs: list[str], width: int) -> Iterator[str]:
    for paragraph in paragraphs:
        yield textwrap.fill(
            paragraph, width, initial_indent=_INDENT, subsequent_indent=_INDENT * 2, break_on_hyphens=False
        )
