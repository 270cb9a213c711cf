"""Failover as JSON has it."""

from __future__ import annotations

from typing import Any

import numpy as np

from moescope.analysis.failover_facts import FailoverFacts
from moescope.analysis.failover_holders import Holders
from moescope.analysis.failover_losses import Loss, Outcome
from moescope.analysis.span_sections import describe_span, json_number


def group_dict(facts: FailoverFacts) -> dict[str, Any]:
    """Whose numbers these are, and what the group is made of."""
    copies = facts.copies
    spread = (facts.placement.replicas > 0).sum(axis=0) > 1
    return describe_span(facts.span) | {
        "ep_size": facts.placement.ep_size,
        "layers": len(facts.layers),
        "experts": int(facts.tokens.shape[1]),
        "top_k": facts.top_k,
        "assignments": int(facts.tokens.sum()),
        "has_redundancy": bool((copies > 1).any()),
        "experts_on_several_ranks": int(spread.sum()),
        "tokens_per_request": json_number(facts.tokens_per_request),
        "silent_ranks": [int(rank) for rank in facts.silent_ranks],
        "missing_ranks": [int(rank) for rank in facts.unplaced_ranks],
        "failovers": facts.failovers.total,
    }


def holders_dict(holders: Holders) -> dict[str, Any]:
    """Who holds an expert."""
    return {
        "expert": holders.expert,
        "layers": holders.layers.tolist(),
        "ranks": [{"rank": rank, "layers": held} for rank, held in holders.layers_of_rank.items()],
        "layers_with_one_rank": holders.single_layers,
        "traffic_share": holders.traffic_share,
    }


def loss_dict(loss: Loss) -> dict[str, Any]:
    """One loss, with what each strategy makes of it."""
    requests = loss.requests_hit
    return {
        "ranks": loss.ranks.tolist(),
        "node": loss.node,
        "lost_experts": loss.lost_experts,
        "covered_experts": loss.covered_experts,
        "traffic_share": loss.traffic_share,
        "taken_over_share": loss.taken_over_share,
        "tokens_hit": {
            "low": loss.tokens_hit.low,
            "expected": loss.tokens_hit.expected,
            "high": loss.tokens_hit.high,
        },
        "requests_hit": None
        if requests is None
        else {"alike": requests.alike, "independent": requests.independent},
        "own_share": loss.own_share,
        "ratio_before": loss.ratio_before,
        "strategies": [_outcome_dict(outcome) for outcome in loss.outcomes.values()],
    }


def _outcome_dict(outcome: Outcome) -> dict[str, Any]:
    load = outcome.reload
    return {
        "strategy": outcome.strategy.value,
        "unserved_share": outcome.unserved_share,
        "ratio_after": outcome.ratio_after,
        "busiest_rank": outcome.busiest_rank,
        "busiest_growth": outcome.growth,
        "reload": None
        if load is None
        else {
            "experts": load.experts,
            "ranks": load.ranks,
            "bytes_total": _bytes(load.bytes_total),
            "bytes_of_most": _bytes(load.bytes_of_most),
            "made_way": load.made_way,
            "without_slot": load.beyond,
            "bytes_without_slot_of_most": _bytes(load.bytes_beyond_of_most),
            "free_bytes_there": _bytes(load.free_bytes_of_it),
            "fits": load.fits,
        },
    }


def _bytes(value: float) -> int | None:
    return None if np.isnan(value) else round(value)
