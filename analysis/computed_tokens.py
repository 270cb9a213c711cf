"""Token rows by phase: those that are part of the load, and those that are excluded, by reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from moescope.analysis.coverage import Coverage, read_coverage
from moescope.analysis.expert_load import TimeArray
from moescope.analysis.frozen import lock, locked_int64
from moescope.analysis.span import Span
from moescope.analysis.store import Store
from moescope.analysis.vocabulary import known_rows
from moescope.schemas.attributes import Excluded, Phase
from moescope.schemas.records import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class TokenKind:
    """What a token row was. Rows that are no part of the load have a phase only where the engine knows it."""

    phase: Phase | None
    excluded: Excluded


@dataclass(frozen=True, slots=True)
class ComputedTokens:
    """Token rows that the engines computed.

    Attributes:
        times: datetime64[ms] ``[steps]``, UTC, starts of the steps.
        per_second: by kind, float64 ``[steps]``.
        totals: by kind, over the whole span.
    """

    times: TimeArray
    per_second: Mapping[TokenKind, FloatArray]
    totals: Mapping[TokenKind, int]

    @property
    def excluded_share(self) -> float | None:
        """Rows that are no part of the load, of all; None when none were computed."""
        total = sum(self.totals.values())
        left_out = sum(n for kind, n in self.totals.items() if kind.excluded is not Excluded.NONE)
        return left_out / total if total else None


def read_computed_tokens(store: Store, span: Span) -> ComputedTokens:
    """Read the token rows of a deployment.

    Raises:
        StoreError: the store cannot answer.
    """
    stored = store.query("computed_tokens", step_seconds=span.step_seconds, **span.params()).to_pylist()
    known = known_rows(stored, "excluded", Excluded)
    unphased = [row for row in known if not row["phase"]]
    rows = known_rows([row for row in known if row["phase"]], "phase", Phase) + unphased
    return arrange_tokens(
        [TokenKind(Phase(row["phase"]) if row["phase"] else None, Excluded(row["excluded"])) for row in rows],
        np.array([row["time_ms"] for row in rows], dtype="datetime64[ms]"),
        locked_int64([row["tokens"] for row in rows]),
        read_coverage(store, span),
    )


def arrange_tokens(
    kinds_of_rows: list[TokenKind], times_of_rows: TimeArray, tokens: IntArray, coverage: Coverage
) -> ComputedTokens:
    """Arrange (kind, time, tokens) by kind over a shared time axis."""
    times, column = np.unique(times_of_rows, return_inverse=True)
    seconds = coverage.seconds_of(times)
    order = [TokenKind(phase, excluded) for excluded in Excluded for phase in (*Phase, None)]
    per_second, totals = {}, {}
    for kind in order:
        rows = [row for row, one in enumerate(kinds_of_rows) if one == kind]
        if rows:
            counts = np.zeros(len(times))
            np.add.at(counts, column[rows], tokens[rows])
            per_second[kind] = lock(counts / seconds)
            totals[kind] = int(tokens[rows].sum())
    return ComputedTokens(lock(times), per_second, totals)
