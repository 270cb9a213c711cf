"""What is lost when ranks are lost: experts, traffic, requests, and what the other ranks get to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from moescope.analysis.failover_reload import Reload, reload_experts
from moescope.analysis.failover_share import (
    BoolArray,
    HitShare,
    TokenArray,
    share_of_tokens_hit,
    tokens_of_layers,
)
from moescope.analysis.failover_survivors import choose_next_best, sum_over_ranks, tokens_per_copy
from moescope.analysis.frozen import lock, locked_float64, locked_int64
from moescope.analysis.imbalance import ReplicaArray
from moescope.schemas.errors import ShapeError
from moescope.schemas.records import FloatArray, IntArray


class FailoverStrategy(StrEnum):
    """What becomes of a token that needs an expert whose rank is gone.

    Experts with a copy elsewhere are served by it under every strategy. They differ in the others:
    ``REASSIGN`` loads them again on ranks that stay, ``BLOCK`` lets their tokens wait or fail, ``FALLBACK``
    lets the token's next-best expert stand in.
    """

    REASSIGN = "reassign_to_redundant_worker"
    BLOCK = "block"
    FALLBACK = "fallback_expert"


@dataclass(frozen=True, slots=True)
class FailoverImpact:
    """What the loss of some ranks does under one strategy. Arrays are read-only.

    Attributes:
        strategy: which.
        lost_ranks: int64, rows of the rank axis.
        is_lost: bool ``[layers, experts]``: experts with copies on lost ranks only.
        is_covered: bool ``[layers, experts]``: experts of the lost ranks that have a copy elsewhere.
        traffic_share: part of all assignments that went to lost experts.
        taken_over_share: part of all assignments that lost copies computed and other copies will.
        traffic_share_by_layer: float64 ``[layers]``; 0 for a layer without tokens.
        tokens_hit: share of the tokens that need a lost expert in some layer.
        tokens_after: float64 ``[layers, experts]``: assignments that somebody computes.
        unserved: float64 ``[layers]``: assignments that nobody computes.
        rank_loads_before, rank_loads_after: float64 ``[layers, ranks]``: assignments; 0 for lost ranks.
        ratio_before, ratio_after: float64 ``[layers]``: max / mean over the ranks that serve; 1 without load.
        reload: where lost experts go, under ``REASSIGN`` and while a rank is left; else None.
    """

    strategy: FailoverStrategy
    lost_ranks: IntArray
    is_lost: BoolArray
    is_covered: BoolArray
    traffic_share: float
    taken_over_share: float
    traffic_share_by_layer: FloatArray
    tokens_hit: HitShare
    tokens_after: FloatArray
    unserved: FloatArray
    rank_loads_before: FloatArray
    rank_loads_after: FloatArray
    ratio_before: FloatArray
    ratio_after: FloatArray
    reload: Reload | None

    @property
    def lost_experts(self) -> IntArray:
        """Experts lost in each layer: int64 ``[layers]``."""
        counts: IntArray = self.is_lost.sum(axis=1, dtype=np.int64)
        return counts

    @property
    def covered_experts(self) -> IntArray:
        """Experts of the lost ranks in each layer that have a copy elsewhere: int64 ``[layers]``."""
        counts: IntArray = self.is_covered.sum(axis=1, dtype=np.int64)
        return counts

    @property
    def unserved_share(self) -> float:
        """Part of all assignments that nobody computes."""
        total = float(self.rank_loads_before.sum())
        return float(self.unserved.sum()) / total if total else 0.0

    @property
    def total_growth(self) -> FloatArray:
        """Load after / before over all layers: float64 ``[ranks]``; 0 for lost ranks, 1 without load."""
        before, after = self.rank_loads_before.sum(axis=0), self.rank_loads_after.sum(axis=0)
        growth = np.where(np.isin(np.arange(len(before)), self.lost_ranks), 0.0, 1.0)
        np.divide(after, before, out=growth, where=before > 0)
        return growth


def lose_ranks(
    tokens: TokenArray,
    replicas: ReplicaArray,
    ranks: Iterable[int],
    *,
    top_k: int,
    strategy: FailoverStrategy = FailoverStrategy.REASSIGN,
    bytes_per_expert: FloatArray | float | None = None,
    free_bytes: FloatArray | None = None,
) -> FailoverImpact:
    """Say what the loss of ``ranks`` does.

    Args:
        tokens: ``[layers, experts]``, assignments of a window, counted or expected.
        replicas: ``[ranks, layers, experts]``, copies; an expert without one is computed by nobody before
            and after, and is not lost.
        ranks: rows of the rank axis that are gone, together.
        top_k: experts per token.
        strategy: what becomes of tokens that need a lost expert.
        bytes_per_expert: of one physical expert: one number or by layer; for ``REASSIGN``.
        free_bytes: float64 ``[ranks]``: memory that nothing is reserved for; for ``REASSIGN``.

    Raises:
        ShapeError: a rank outside the rank axis, or a top-k that is none.
    """
    count = len(replicas)
    lost_ranks = np.unique(np.fromiter(ranks, dtype=np.int64))
    if len(lost_ranks) and not 0 <= lost_ranks[0] <= lost_ranks[-1] < count:
        raise ShapeError(f"ranks {lost_ranks.tolist()}: the placement has the ranks 0 … {count - 1}")
    if not 1 <= top_k <= tokens.shape[1]:
        raise ShapeError(f"top-{top_k} of {tokens.shape[1]} experts is impossible")
    is_alive = np.ones(count, dtype=np.bool_)
    is_alive[lost_ranks] = False
    copies = replicas.sum(axis=0, dtype=np.int64)
    gone = replicas[lost_ranks].sum(axis=0, dtype=np.int64)
    is_lost = (copies > 0) & (gone == copies)
    shares = [tokens_per_copy(tokens, copies)]
    hit = share_of_tokens_hit(tokens, is_lost, top_k)
    served = np.where(copies > 0, tokens, 0.0)
    reload = None
    if strategy is FailoverStrategy.REASSIGN and is_alive.any():
        reload = reload_experts(
            tokens, replicas, is_lost, is_alive, bytes_per_expert=bytes_per_expert, free_bytes=free_bytes
        )
        (before,) = sum_over_ranks(shares, replicas)
        tokens_after, after = served, reload.rank_loads
    else:
        tokens_after = _served(served, is_lost, top_k, strategy)
        shares.append(tokens_per_copy(tokens_after, copies - gone))
        before, after = sum_over_ranks(shares, replicas)
        after[:, lost_ranks] = 0
    return FailoverImpact(
        strategy,
        locked_int64(lost_ranks),
        lock(is_lost),
        lock((gone > 0) & ~is_lost),
        _share(tokens[is_lost].sum(), tokens.sum()),
        _share((tokens * gone / np.maximum(copies, 1))[~is_lost].sum(), tokens.sum()),
        lock(_shares((tokens * is_lost).sum(axis=1), tokens.sum(axis=1))),
        hit,
        locked_float64(tokens_after),
        lock(_missing(served, tokens_after)),
        lock(before),
        locked_float64(after),
        lock(_max_over_mean(before)),
        lock(_max_over_mean(after[:, is_alive])),
        reload,
    )


def _served(tokens: FloatArray, is_lost: BoolArray, top_k: int, strategy: FailoverStrategy) -> FloatArray:
    """Assignments by layer and expert that somebody computes, where no expert is loaded again."""
    if strategy is FailoverStrategy.FALLBACK:
        return choose_next_best(tokens, is_lost, top_k)
    if strategy is FailoverStrategy.REASSIGN:  # no rank is left to load them
        return np.zeros_like(tokens)
    return _pass_layers(tokens, is_lost, top_k)


def _pass_layers(tokens: FloatArray, is_lost: BoolArray, top_k: int) -> FloatArray:
    """What gets through: a token that waits in one layer computes nothing there nor in the layers behind."""
    through = 1.0
    passed = np.zeros_like(tokens)
    for row, lost in enumerate(is_lost):
        one = slice(row, row + 1)
        through *= 1 - share_of_tokens_hit(tokens[one], is_lost[one], top_k).expected
        free = np.where(lost, 0.0, tokens[row])
        # Those that pass still make all their choices, among the experts that are there.
        most = tokens_of_layers(tokens[one], top_k)[0]
        scale = _share(tokens[row].sum(), free.sum())
        passed[row] = np.minimum(free * scale, most) * through
    return passed


def _missing(before: FloatArray, after: FloatArray) -> FloatArray:
    """What a layer lacks, rounding left out."""
    lacks = (before - after).sum(axis=1)
    missing: FloatArray = np.where(lacks > 1e-9 * before.sum(axis=1), lacks, 0.0)
    return missing


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def _shares(parts: TokenArray, wholes: TokenArray) -> FloatArray:
    shares: FloatArray = np.divide(parts, wholes, out=np.zeros(len(parts)), where=wholes > 0)
    return shares


def _max_over_mean(loads: FloatArray) -> FloatArray:
    mean = loads.mean(axis=1) if loads.shape[1] else np.zeros(len(loads))
    largest = loads.max(axis=1, initial=0.0)
    ratio: FloatArray = np.divide(largest, mean, out=np.ones(len(loads)), where=mean > 0)
    return ratio
