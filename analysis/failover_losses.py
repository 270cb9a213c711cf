"""N − 1 over every rank and every node of an EP group, in numbers that fit a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from moescope.analysis.failover_facts import FailoverFacts
from moescope.analysis.failover_impact import FailoverImpact, FailoverStrategy, lose_ranks
from moescope.analysis.failover_share import HitShare, RequestShare, share_of_requests_hit
from moescope.analysis.frozen import locked_int64
from moescope.schemas.records import IntArray


@dataclass(frozen=True, slots=True)
class ReloadSummary:
    """Lost experts that are loaded again.

    Attributes:
        experts: of all layers.
        ranks: EP ranks that load any.
        bytes_total: of their weights; NaN where their size is not known.
        bytes_of_most: of the rank that loads most.
        made_way: second copies of other experts that are given up.
        beyond: experts for which no rank has a slot.
        bytes_beyond_of_most: memory that the rank with most of those needs beside its slots.
        free_bytes_of_it: what that rank has free; NaN where it is not known.
        fits: whether every rank has the room; None where that cannot be known.
    """

    experts: int
    ranks: int
    bytes_total: float
    bytes_of_most: float
    made_way: int
    beyond: int
    bytes_beyond_of_most: float
    free_bytes_of_it: float
    fits: bool | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One loss under one strategy.

    Attributes:
        unserved_share: part of the assignments that nobody computes.
        ratio_after: Σ max / Σ mean of the rank loads over the layers, of the ranks that stay.
        growth: load after / before of the rank whose load grows most, over all layers.
        busiest_rank: that rank, EP rank; None where no rank is left.
        reload: what is loaded again; None where nothing is, or the strategy does not.
    """

    strategy: FailoverStrategy
    unserved_share: float
    ratio_after: float
    growth: float
    busiest_rank: int | None
    reload: ReloadSummary | None


@dataclass(frozen=True, slots=True)
class Loss:
    """What is lost with a rank, or with all ranks of a node.

    Attributes:
        ranks: int64, EP ranks that are lost.
        node: their machine; None where a single rank is meant.
        lost_experts: over all layers, those without a copy elsewhere; ``covered_experts`` those with one.
        traffic_share: part of the assignments that went to lost experts.
        taken_over_share: part of the assignments that other copies take over.
        tokens_hit: share of the tokens that need a lost expert in some layer.
        requests_hit: of the requests; None where their length is not known.
        own_share: part of the requests that the lost ranks serve themselves: these fail whatever is done.
        ratio_before: Σ max / Σ mean of the rank loads over the layers, before.
        outcomes: by strategy, those that were asked for.
    """

    ranks: IntArray
    node: str | None
    lost_experts: int
    covered_experts: int
    traffic_share: float
    taken_over_share: float
    tokens_hit: HitShare
    requests_hit: RequestShare | None
    own_share: float
    ratio_before: float
    outcomes: Mapping[FailoverStrategy, Outcome]


def assess_ranks(facts: FailoverFacts, strategies: Sequence[FailoverStrategy]) -> tuple[Loss, ...]:
    """Every rank on its own, the one with most traffic to lose first."""
    return _worst_first(assess_loss(facts, [row], None, strategies) for row in range(len(facts.ranks)))


def assess_nodes(facts: FailoverFacts, strategies: Sequence[FailoverStrategy]) -> tuple[Loss, ...]:
    """Every node, the one with most traffic to lose first."""
    return _worst_first(assess_loss(facts, rows, name, strategies) for name, rows in facts.nodes.items())


def assess_loss(
    facts: FailoverFacts, rows: Iterable[int], node: str | None, strategies: Sequence[FailoverStrategy]
) -> Loss:
    """The loss of some rows of the rank axis together."""
    lost = locked_int64(sorted(rows))
    impacts = {strategy: _lose(facts, lost, strategy) for strategy in strategies}
    any_impact = next(iter(impacts.values()))
    length = facts.tokens_per_request
    engines = np.unique(facts.ranks[lost] // facts.ranks_per_engine)
    dying = np.isin(facts.ranks // facts.ranks_per_engine, engines)
    return Loss(
        locked_int64(facts.ranks[lost]),
        node,
        int(any_impact.is_lost.sum()),
        int(any_impact.is_covered.sum()),
        any_impact.traffic_share,
        any_impact.taken_over_share,
        any_impact.tokens_hit,
        None if np.isnan(length) else share_of_requests_hit(any_impact.tokens_hit, length),
        float(facts.own_share[dying].sum()),
        _ratio_of_sums(any_impact.rank_loads_before),
        {strategy: _outcome(facts, impact) for strategy, impact in impacts.items()},
    )


def _lose(facts: FailoverFacts, lost: IntArray, strategy: FailoverStrategy) -> FailoverImpact:
    return lose_ranks(
        facts.tokens,
        facts.placement.replicas,
        lost,
        top_k=facts.top_k,
        strategy=strategy,
        bytes_per_expert=facts.bytes_per_expert,
        free_bytes=facts.free_bytes,
    )


def _outcome(facts: FailoverFacts, impact: FailoverImpact) -> Outcome:
    stay = np.setdiff1d(np.arange(len(facts.ranks)), impact.lost_ranks)
    growth = impact.total_growth
    busiest = int(stay[growth[stay].argmax()]) if len(stay) else None
    return Outcome(
        impact.strategy,
        impact.unserved_share,
        _ratio_of_sums(impact.rank_loads_after[:, stay]),
        1.0 if busiest is None else float(growth[busiest]),
        None if busiest is None else int(facts.ranks[busiest]),
        _reload(facts, impact),
    )


def _reload(facts: FailoverFacts, impact: FailoverImpact) -> ReloadSummary | None:
    load = impact.reload
    if load is None or not len(load.expert):
        return None
    most = int(np.nan_to_num(load.bytes_beyond).argmax())
    return ReloadSummary(
        len(load.expert),
        len(np.unique(load.rank)),
        float(load.bytes_to_load.sum()),
        float(load.bytes_to_load.max()),
        load.made_way,
        load.beyond,
        float(load.bytes_beyond[most]),
        float(facts.free_bytes[most]),
        load.fits,
    )


def _ratio_of_sums(rank_loads: np.ndarray) -> float:
    """Σ max / Σ mean over the layers; 1 without load."""
    if not rank_loads.size:
        return 1.0
    mean = float(rank_loads.mean(axis=1).sum())
    return float(rank_loads.max(axis=1).sum()) / mean if mean else 1.0


def _worst_first(losses: Iterable[Loss]) -> tuple[Loss, ...]:
    return tuple(sorted(losses, key=lambda loss: (-loss.traffic_share, -loss.taken_over_share)))
