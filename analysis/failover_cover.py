"""What would be lost with each rank of an EP group, all of them at once: the part that a page shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from moescope.analysis.expert_load import LoadScope
from moescope.analysis.failover_facts import read_placed_load
from moescope.analysis.failover_share import TokenArray
from moescope.analysis.frozen import lock, locked_int64
from moescope.analysis.imbalance import ReplicaArray
from moescope.analysis.silent_ranks import read_silent_ranks
from moescope.analysis.store import Store
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.settings import Settings


@dataclass(frozen=True, slots=True)
class RankCover:
    """What is lost with each rank on its own. Arrays are read-only.

    Attributes:
        ranks: int64 ``[ranks]``, EP ranks that go on.
        lost_share: float64 ``[ranks]``, part of the assignments that go to experts which only that rank
            holds; 0 where nothing was assigned.
    """

    ranks: IntArray
    lost_share: FloatArray

    @property
    def uncovered_share(self) -> float:
        """Part of the assignments that go to experts which one rank alone holds: each is lost with one."""
        return float(self.lost_share.sum())

    @property
    def worst(self) -> int:
        """Row of the rank with most to lose."""
        return int(self.lost_share.argmax())

    def beyond(self, acceptable_share: float) -> int:
        """How many ranks take more with them; 0 of one rank alone, which always takes everything."""
        return int((self.lost_share > acceptable_share).sum()) if len(self.ranks) > 1 else 0


def cover_ranks(tokens: TokenArray, replicas: ReplicaArray, ranks: IntArray) -> RankCover:
    """Say what would be lost with each rank.

    Args:
        tokens: ``[layers, experts]``, assignments.
        replicas: ``[ranks, layers, experts]``, copies.
        ranks: int64 ``[ranks]``, their EP ranks.
    """
    holds = replicas > 0
    is_alone = holds.sum(axis=0) == 1
    total = float(tokens.sum())
    lost = np.array([tokens[row & is_alone].sum() for row in holds], dtype=np.float64)
    return RankCover(locked_int64(ranks), lock(lost / total if total else np.zeros(len(ranks))))


def read_rank_cover(
    store: Store, scopes: Sequence[LoadScope], window_seconds: float, settings: Settings
) -> RankCover | None:
    """Read one EP group by the scopes of its phases; None where no rank said which experts it holds.

    As in the report, ranks that fell silent are gone already, unless all of them did.

    Raises:
        StoreError: the store cannot answer.
    """
    load = read_placed_load(store, scopes, window_seconds, settings)
    if load is None:
        return None
    silent = read_silent_ranks(store, scopes[0].service, scopes[0].ep_group, settings)
    ranks = load.placement.ranks
    rows = np.flatnonzero(~np.isin(ranks, silent))
    rows = np.arange(len(ranks)) if not len(rows) else rows
    tokens = np.sum(list(load.tokens_by_phase.values()), axis=0)
    return cover_ranks(tokens, load.placement.replicas[rows], ranks[rows])
