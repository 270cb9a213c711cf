"""Which ranks hold an expert: the answer to who must not fail."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moescope.analysis.failover_facts import FailoverFacts
from moescope.schemas.errors import UsageError
from moescope.schemas.records import IntArray


@dataclass(frozen=True, slots=True)
class Holders:
    """Where one expert's copies are, in one layer or in all.

    Attributes:
        layers: int64, layer indices of the model that are meant.
        layers_of_rank: by EP rank, in how many of them it holds a copy; the most first.
        single_layers: in how many of them there is one rank with a copy.
        traffic_share: part of the assignments of these layers that goes to the expert.
    """

    expert: int
    layers: IntArray
    layers_of_rank: dict[int, int]
    single_layers: int
    traffic_share: float

    @property
    def home(self) -> int:
        """The rank that holds it in most layers."""
        return next(iter(self.layers_of_rank))


def find_holders(facts: FailoverFacts, expert: int, layer: int | None) -> Holders:
    """Find who holds an expert.

    Raises:
        UsageError: an expert or a layer that the model does not have, or an expert that no rank holds.
    """
    num_experts = facts.tokens.shape[1]
    if not 0 <= expert < num_experts:
        raise UsageError(f"--expert {expert}: the model has the experts 0 … {num_experts - 1}")
    rows = np.arange(len(facts.layers)) if layer is None else np.flatnonzero(facts.layers == layer)
    if not len(rows):
        raise UsageError(
            f"--layer {layer}: layers with experts are {facts.layers.min()} … {facts.layers.max()}"
        )
    held = facts.placement.replicas[:, rows, expert] > 0
    in_layers = held.sum(axis=1)
    order = [row for row in np.argsort(-in_layers, kind="stable") if in_layers[row]]
    if not order:
        raise UsageError(f"--expert {expert}: no rank that reports holds a copy of it")
    total = int(facts.tokens[rows].sum())
    return Holders(
        expert,
        facts.layers[rows],
        {int(facts.ranks[row]): int(in_layers[row]) for row in order},
        int((held.sum(axis=0) == 1).sum()),
        int(facts.tokens[rows, expert].sum()) / total if total else 0.0,
    )
