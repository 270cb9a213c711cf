"""What ranks exchange, printed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.dispatch import CYCLES_WORDS, WaitMatrix, read_waits
from moescope.analysis.rank_io import (
    RankTraffic,
    TrafficValue,
    find_busiest_pair,
    read_hosts,
    read_traffic,
    share_that_leaves_node,
)
from moescope.analysis.report_sections import DEFAULT_WIDTH
from moescope.analysis.span import Span
from moescope.analysis.span_sections import UNKNOWN, describe_span, print_spans
from moescope.analysis.store import Store
from moescope.analysis.text_table import Column, render_table
from moescope.schemas.attributes import DispatchStage, Phase

_COLUMNS: Final = (
    *(Column("phase", left=True), Column("rank"), Column("sent"), Column("received")),
    *(Column("tokens"), Column("assignments"), Column("saved")),
)
DEDUP_FORMULA: Final = "assignments / tokens sent"


@dataclass(frozen=True, slots=True)
class TrafficAnswer:
    """What the ranks of one EP group exchanged in a span, and whom they waited for."""

    span: Span
    traffic: Mapping[Phase, RankTraffic]
    waits: Mapping[DispatchStage, WaitMatrix]
    host_of_rank: Mapping[int, str]
    limit: int

    def lines(self, width: int) -> Iterator[str]:
        """See :class:`~moescope.analysis.span_sections.SpanAnswer`."""
        if not self.traffic:
            yield "No rank reported what it sends to the others."
        for traffic in self.traffic.values():
            yield textwrap.fill(self._describe(traffic), width)
        rows = [row for traffic in self.traffic.values() for row in self._rank_rows(traffic)]
        if rows:
            yield render_table(_COLUMNS, rows, width)
        for waits in self.waits.values():
            yield textwrap.fill(_describe_waits(waits), width)

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape of one EP group."""
        return describe_span(self.span) | {
            "phases": [self._phase_dict(traffic) for traffic in self.traffic.values()],
            "waits": [_waits_dict(waits) for waits in self.waits.values()],
        }

    def leaves_node(self, traffic: RankTraffic) -> float | None:
        """Part of the bytes sent that goes to other hosts; None where hosts are unknown."""
        return share_that_leaves_node(traffic, TrafficValue.BYTES_SENT, self.host_of_rank)

    def _describe(self, traffic: RankTraffic) -> str:
        text = (
            f"{traffic.phase.value.capitalize()}: {words.si_bytes(traffic.bytes_per_second)}/s sent by "
            f"{words.count(traffic.num_reporting, 'rank')}"
        )
        leaves = self.leaves_node(traffic)
        if leaves is not None:
            text += f", {words.percent(leaves)} of it to other nodes"
        if traffic.dedup_factor is not None:
            text += f"; each token stands for {traffic.dedup_factor:.2f} assignments ({DEDUP_FORMULA})"
        pair = find_busiest_pair(traffic, TrafficValue.BYTES_SENT)
        if pair is not None:
            text += f". Busiest: rank {pair.rank} to rank {pair.peer}, {pair.times_mean:.2f} × the mean pair"
        return f"{text}."

    def _rank_rows(self, traffic: RankTraffic) -> Iterator[list[str]]:
        sums = {value: matrix.sum(axis=1) for value, matrix in traffic.values.items()}
        order = np.argsort(-sums[TrafficValue.BYTES_SENT], kind="stable")
        for row in [row for row in order if traffic.reporting[row]][: self.limit]:
            tokens, assignments = (
                int(sums[value][row]) for value in (TrafficValue.TOKENS, TrafficValue.ASSIGNMENTS)
            )
            yield [
                traffic.phase.value,
                str(traffic.ranks[row]),
                words.si_bytes(int(sums[TrafficValue.BYTES_SENT][row])),
                words.si_bytes(int(sums[TrafficValue.BYTES_RECEIVED][row])),
                words.integer(tokens),
                words.integer(assignments),
                words.percent(1 - tokens / assignments) if assignments else UNKNOWN,
            ]

    def _phase_dict(self, traffic: RankTraffic) -> dict[str, Any]:
        return {
            "phase": traffic.phase.value,
            "ranks": traffic.ranks.tolist(),
            "reporting": traffic.ranks[traffic.reporting].tolist(),
            "dedup_factor": traffic.dedup_factor,
            "bytes_per_token": traffic.bytes_per_token,
            "share_that_leaves_node": self.leaves_node(traffic),
        } | {value.value.replace(" ", "_"): matrix.tolist() for value, matrix in traffic.values.items()}


@dataclass(frozen=True, slots=True)
class TrafficReport:
    """What the ranks of every EP group exchanged."""

    answers: tuple[TrafficAnswer, ...]
    service: str | None

    @property
    def has_problem(self) -> bool:
        """Never: traffic has no limit that could be broken."""
        return False

    def to_text(self, width: int = DEFAULT_WIDTH) -> str:
        """Tables for a terminal of that width."""
        return print_spans(self.answers, self.service, width)

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape: ``groups[] → phases[], waits[]``; matrices ``[ranks, peers]``, the row reports.

        Waits are ``wait_seconds``, or ``waits_of_mean_pair`` where an engine counts no time.
        """
        return {"groups": [answer.to_dict() for answer in self.answers]}


def read_traffic_answer(store: Store, span: Span, limit: int) -> TrafficAnswer:
    """Read everything that the report and the page say about one EP group's traffic.

    Raises:
        StoreError: the store cannot answer.
    """
    return TrafficAnswer(
        span, read_traffic(store, span), read_waits(store, span), read_hosts(store, span), limit
    )


def _waits_dict(waits: WaitMatrix) -> dict[str, Any]:
    name, cells = (
        ("wait_seconds", waits.seconds) if waits.is_time else ("waits_of_mean_pair", waits.of_mean_pair)
    )
    return {
        "stage": waits.stage.value,
        "ranks": waits.ranks.tolist(),
        name: [[None if np.isnan(cell) else cell for cell in row] for row in cells.tolist()],
    }


def _describe_waits(waits: WaitMatrix) -> str:
    if not waits.is_time:
        return (
            f"In {waits.stage.value} the ranks waited longest for rank {waits.most_awaited}: "
            f"{waits.caused_of_mean.max():.2f} × the mean rank. {CYCLES_WORDS}"
        )
    return (
        f"In {waits.stage.value} the ranks waited {words.seconds(float(waits.waited_seconds.sum()))} for "
        f"one another, longest for rank {waits.most_awaited}: "
        f"{words.seconds(float(waits.caused_seconds.max()))}."
    )
