"""Experts whose copies had to stand in for one another."""

from __future__ import annotations

from dataclasses import dataclass

from moescope.analysis.span import Span
from moescope.analysis.store import Store
from moescope.analysis.vocabulary import known_rows
from moescope.schemas.attributes import FailoverReason


@dataclass(frozen=True, slots=True)
class ExpertFailovers:
    """How often other copies of one expert served for one reason in a span."""

    ep_group: str
    layer: int
    expert: int
    reason: FailoverReason
    failovers: int


@dataclass(frozen=True, slots=True)
class Failovers:
    """The failovers of a deployment.

    Attributes:
        total: all of them.
        by_reason: how many for each reason that occurred.
        experts: the (layer, expert, reason) with most of them, the most first.
    """

    total: int
    by_reason: dict[FailoverReason, int]
    experts: tuple[ExpertFailovers, ...]


def read_failovers(store: Store, span: Span, *, limit: int = 100) -> Failovers:
    """Read which experts failed over.

    Raises:
        StoreError: the store cannot answer.
    """
    stored = store.query("failovers", limit=limit, **span.params()).to_pylist()
    rows = known_rows(stored, "reason", FailoverReason)
    by_reason: dict[FailoverReason, int] = {}
    for row in rows:
        by_reason[FailoverReason(row["reason"])] = row["of_reason"]
    return Failovers(
        sum(by_reason.values()),
        by_reason,
        tuple(
            ExpertFailovers(
                *(row["ep_group"], row["layer"], row["expert"]),
                FailoverReason(row["reason"]),
                row["failovers"],
            )
            for row in rows
        ),
    )
