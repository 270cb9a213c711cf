"""Read how long the passes of each rank take, and what of them the experts and the exchanges take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from moescope.analysis.failover_facts import FailoverFacts
from moescope.analysis.failover_share import tokens_of_layers
from moescope.analysis.frozen import lock
from moescope.analysis.partial_failure import PassTimes
from moescope.analysis.store import Store, column_as_array
from moescope.schemas.attributes import DispatchStage, Phase
from moescope.schemas.records import FloatArray, IntArray

_NS: Final = 1e9
_BATCHES: Final = np.geomspace(1, 64, 13)
"""Multiples of a batch for which the activated experts are worked out; between them it is interpolated."""


def read_pass_times(store: Store, facts: FailoverFacts) -> Mapping[Phase, PassTimes]:
    """Read the passes of each phase; a phase without measured passes of every rank is left out.

    Ranks that say nothing of their experts or exchanges count as if these took no time.

    Raises:
        StoreError: the store cannot answer.
    """
    params = facts.span.params()
    steps, exchanges, experts = (
        store.query(name, **params) for name in ("rank_steps", "rank_exchanges", "rank_expert_time")
    )
    found = {}
    for phase, tokens in facts.tokens_by_phase.items():
        number, seconds, sized, size = (
            _by_rank(_of(steps, phase), name, facts.ranks) for name in ("steps", "seconds", "sized", "tokens")
        )
        if not len(number) or not (number > 0).all():
            continue
        by_layer, num_layers = _expert_seconds(_of(experts, phase), facts, number)
        found[phase] = PassTimes(
            lock(seconds / number),
            lock(np.divide(size, sized, out=np.ones(len(size)), where=sized > 0)),
            lock(by_layer),
            _exchange_seconds(_of(exchanges, phase), facts.ranks),
            lock(reach_of_ranks(tokens, facts.placement.replicas, facts.top_k)),
            num_layers,
            lock(np.minimum(seconds / max(facts.span.seconds, 1.0), 1.0)),
            _activated(facts, phase, float(size.sum() / max(sized.mean(), 1.0))),
        )
    return found


def reach_of_ranks(tokens: IntArray, replicas: Any, top_k: int) -> FloatArray:
    """Chance that a token needs each rank in a layer: float64 ``[layers, ranks]``.

    1 − Π (1 − pₑ · copies on the rank / copies) over the experts, pₑ being the share of tokens that chose e.
    """
    copies = np.maximum(replicas.sum(axis=0, dtype=np.int64), 1)
    of_layer = np.maximum(tokens_of_layers(tokens, top_k), 1.0)[:, None]
    reach = np.empty((len(tokens), len(replicas)))
    with np.errstate(divide="ignore"):  # an expert that every token chooses
        for row, held in enumerate(replicas):
            chance = np.minimum(tokens * held / copies / of_layer, 1.0)
            reach[:, row] = -np.expm1(np.log1p(-chance).sum(axis=1))
    return reach


def activated_experts(tokens: IntArray, replicas: Any, top_k: int, batch: float) -> float:
    """Copies that a pass of ``batch`` tokens of the whole group activates, over all layers and ranks.

    An expert's tokens are split over its copies: each is activated with the chance 1 − exp(−batch·pₑ/copies).
    """
    copies = np.maximum(replicas.sum(axis=0, dtype=np.int64), 1)
    of_layer = np.maximum(tokens_of_layers(tokens, top_k), 1.0)[:, None]
    each = -np.expm1(-batch * tokens / of_layer / copies)
    return float((each * copies).sum())


def _activated(facts: FailoverFacts, phase: Phase, batch: float) -> FloatArray | None:
    """How the activated experts grow with a decode batch: float64 ``[2, points]``."""
    if phase is not Phase.DECODE:
        return None
    tokens, replicas = facts.tokens_by_phase[phase], facts.placement.replicas
    now = activated_experts(tokens, replicas, facts.top_k, batch)
    grown = [activated_experts(tokens, replicas, facts.top_k, batch * times) for times in _BATCHES]
    curve: FloatArray = lock(np.array([_BATCHES, np.array(grown) / max(now, 1e-9)]))
    return curve


def _of(table: pa.Table, phase: Phase) -> pa.Table:
    return table.filter(pa.array(column_as_array(table, "phase") == phase.value))


def _by_rank(table: pa.Table, column: str, ranks: IntArray) -> FloatArray:
    """A column on the rank axis: float64 ``[ranks]``, 0 where a rank has no row."""
    values = np.zeros(len(ranks))
    of_rank = dict(zip(table.column("ep_rank").to_pylist(), column_as_array(table, column), strict=True))
    for row, rank in enumerate(ranks.tolist()):
        values[row] = of_rank.get(rank, 0.0)
    return values


def _expert_seconds(table: pa.Table, facts: FailoverFacts, steps: FloatArray) -> tuple[FloatArray, int]:
    """Expert kernels of one pass: float64 ``[layers, ranks]``, and how many layers the model has."""
    seconds = np.zeros((len(facts.layers), len(facts.ranks)))
    num_layers = len(facts.layers)
    for rank, nanoseconds in zip(
        table.column("ep_rank").to_pylist(), table.column("nanoseconds").to_pylist(), strict=True
    ):
        row = facts.row_of_rank(rank)
        if row is not None:
            by_layer = np.zeros(max(len(nanoseconds), int(facts.layers.max(initial=-1)) + 1))
            by_layer[: len(nanoseconds)] = nanoseconds
            seconds[:, row] = by_layer[facts.layers] / steps[row] / _NS
            num_layers = max(num_layers, len(nanoseconds))
    return seconds, num_layers


def _exchange_seconds(table: pa.Table, ranks: IntArray) -> float:
    """The shortest mean dispatch of a rank: the one that comes last waits least."""
    is_dispatch = pa.array(column_as_array(table, "stage") == DispatchStage.DISPATCH.value)
    dispatches = table.filter(is_dispatch)
    calls, seconds = (_by_rank(dispatches, name, ranks) for name in ("calls", "seconds"))
    timed = calls > 0
    return float((seconds[timed] / calls[timed]).min()) if timed.any() else 0.0
