"""What one expert costs: its time, its memory, and how often other copies stood in for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.expert_load import TimeArray
from moescope.analysis.frozen import lock
from moescope.analysis.span import Span
from moescope.analysis.store import Store, column_as_array
from moescope.analysis.vocabulary import known_rows
from moescope.schemas.attributes import DurationSource, FailoverReason, Phase
from moescope.schemas.records import FloatArray

_NS: Final = 1e9


@dataclass(frozen=True, slots=True)
class ExpertLatency:
    """One expert's time in one phase. Arrays are ``[steps]``.

    Attributes:
        source: measured, or shared out from the grouped kernel's time by tokens.
        times: datetime64[ms], UTC, starts of the steps.
        ns_per_token: float64, NaN where it got no tokens.
        share_of_layer: float64, its part of its layer's time.
    """

    phase: Phase
    source: DurationSource
    times: TimeArray
    ns_per_token: FloatArray
    share_of_layer: FloatArray

    @property
    def seconds_per_token(self) -> FloatArray:
        """The same as seconds: float64 ``[steps]``."""
        return self.ns_per_token / _NS


@dataclass(frozen=True, slots=True)
class ExpertMemory:
    """The weights of one expert, over all its copies.

    Attributes:
        copies: by EP rank, how many it holds.
        bytes_total: of the copies whose rank says how large they are.
        sized_copies: how many those are.
    """

    copies: Mapping[int, int]
    bytes_total: int
    sized_copies: int

    @property
    def bytes_each(self) -> float:
        """Of one copy, the mean of those whose size is known."""
        return self.bytes_total / self.sized_copies


@dataclass(frozen=True, slots=True)
class ExpertCosts:
    """All that is stored of one expert beside its load.

    Attributes:
        latency: by phase, those with data.
        memory: None where no rank reported the size of its weights.
        failovers: by reason, over the span; empty when there were none.
    """

    layer: int
    expert: int
    latency: Mapping[Phase, ExpertLatency]
    memory: ExpertMemory | None
    failovers: Mapping[FailoverReason, int]


def read_expert_costs(store: Store, span: Span, layer: int, expert: int) -> ExpertCosts:
    """Read one expert of one EP group.

    Raises:
        StoreError: the store cannot answer.
    """
    which = {"layer": layer, "expert": expert}
    latency = store.query("expert_latency", step_seconds=span.step_seconds, **which, **span.params())
    failovers = store.query("expert_failovers", **which, **span.params()).to_pylist()
    memory = store.query("expert_memory", service=span.service, ep_group=span.ep_group, **which).to_pylist()
    failed = known_rows(failovers, "reason", FailoverReason)
    return ExpertCosts(
        *(layer, expert, _by_phase(latency)),
        _memory(memory),
        {FailoverReason(row["reason"]): row["failovers"] for row in failed},
    )


def describe_costs(costs: ExpertCosts) -> str:
    """Weights and failovers in sentences; empty where nothing is stored."""
    parts = []
    if costs.memory is not None:
        parts.append(_describe_memory(costs.memory))
    if costs.failovers:
        times = words.count(sum(costs.failovers.values()), "time")
        reasons = ", ".join(
            f"{words.integer(number)} {reason.value.replace('_', ' ')}"
            for reason, number in costs.failovers.items()
        )
        parts.append(f"Another copy stood in for it {times} in this window ({reasons}).")
    return " ".join(parts)


def _memory(rows: list[dict[str, Any]]) -> ExpertMemory | None:
    """Ranks that do not say how large an expert is hold copies of it and no bytes."""
    held = [row for row in rows if row["replicas"]]
    sized = [row for row in held if row["bytes"]]
    if not sized:
        return None
    return ExpertMemory(
        {row["ep_rank"]: row["replicas"] for row in held},
        sum(row["bytes"] for row in sized),
        sum(row["replicas"] for row in sized),
    )


def _describe_memory(memory: ExpertMemory) -> str:
    copies, each = sum(memory.copies.values()), words.binary_bytes(memory.bytes_each)
    if copies == 1:
        return f"Its weights take {each}."
    if memory.sized_copies < copies:
        return (
            f"Its weights take {each} a copy; it has {words.copies(copies)}, and the size of "
            f"{memory.sized_copies} is reported."
        )
    return f"Its weights take {words.binary_bytes(memory.bytes_total)}: {words.copies(copies)} of {each}."


def _by_phase(table: Any) -> Mapping[Phase, ExpertLatency]:
    """Where an engine measures and another apportions, what was measured is shown."""
    phases, sources = column_as_array(table, "phase"), column_as_array(table, "source")
    times = column_as_array(table, "time_ms").astype("datetime64[ms]")
    own, tokens, whole = (
        column_as_array(table, name).astype(np.float64) for name in ("duration_ns", "tokens", "layer_ns")
    )
    found = {}
    for phase in Phase:
        for source in DurationSource:
            rows = (phases == phase.value) & (sources == source.value)
            if rows.any() and phase not in found:
                found[phase] = ExpertLatency(
                    *(phase, source, lock(times[rows])),
                    lock(_divide(own[rows], tokens[rows])),
                    lock(_divide(own[rows], whole[rows])),
                )
    return found


def _divide(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    answer = np.full(len(numerator), np.nan)
    np.divide(numerator, denominator, out=answer, where=denominator > 0)
    return answer
