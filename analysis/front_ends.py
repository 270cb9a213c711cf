"""How much of the requests each front end serves: what is turned away while it is down."""

from __future__ import annotations

from dataclasses import dataclass

from moescope.analysis.span import Span
from moescope.analysis.store import Store


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """One front end in a span.

    Attributes:
        host: machine; empty where it is not known.
        instance: process.
        requests: that finished.
        share: of all front ends of the deployment: what is turned away without it, if nobody steps in.
    """

    ep_group: str
    host: str
    instance: str
    requests: int
    share: float


def read_front_ends(store: Store, span: Span) -> tuple[FrontEnd, ...]:
    """Read the front ends of a span, the one with most requests first.

    Raises:
        StoreError: the store cannot answer.
    """
    rows = store.query("frontend_requests", **span.params()).to_pylist()
    total = sum(row["requests"] for row in rows)
    return tuple(
        FrontEnd(
            *(row["ep_group"], row["host"], row["instance"]), int(row["requests"]), row["requests"] / total
        )
        for row in rows
    )
