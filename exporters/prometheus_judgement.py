"""What the analysis says of a fleet, as families of a page."""

from __future__ import annotations

import math
from collections.abc import Iterator

from moescope.exporters.prometheus_state import FamilyState, Sample
from moescope.schemas import attributes as a
from moescope.schemas import page_metrics as p
from moescope.schemas.fleet import FleetJudgement, LayerBalance, ListedExpert
from moescope.schemas.page_metrics import EXPERT_LABEL, GROUP_LABELS, HARMFUL_LABEL, KIND_LABEL, RANK_LABELS
from moescope.schemas.records import FloatArray

_PHASE = p.label_name(a.PHASE)
_BY_LAYER = (*GROUP_LABELS, _PHASE, p.label_name(a.LAYER))


def judged_families(judgement: FleetJudgement, *, hot_experts: int) -> tuple[FamilyState, ...]:
    """Return the families of a judgement, without the numbers that are not known (NaN).

    Args:
        judgement: what the analysis says.
        hot_experts: most samples of the list of hot experts.
    """
    return (
        *_balances(judgement.balances),
        *_hot_experts(judgement.hot_experts[:hot_experts]),
        *_closer_look(judgement),
        FamilyState(
            p.FINDINGS,
            (*GROUP_LABELS, KIND_LABEL),
            tuple(
                Sample((one.service, one.ep_group, one.kind.value), float(one.count))
                for one in judgement.findings
            ),
        ),
    )


def contract_family(*, ttft_seconds: float, tpot_seconds: float) -> FamilyState:
    """The latency contract, so that an alert rule needs no copy of its limits."""
    limits = (Sample(("ttft",), ttft_seconds), Sample(("tpot",), tpot_seconds))
    return FamilyState(p.CONTRACT_LIMIT, (KIND_LABEL,), limits)


def _balances(balances: tuple[LayerBalance, ...]) -> Iterator[FamilyState]:
    yield FamilyState(p.LAYER_IMBALANCE, _BY_LAYER, _per_layer(balances, [one.ratio for one in balances]))
    net = [one.net_ratio for one in balances]
    yield FamilyState(p.LAYER_IMBALANCE_NET, _BY_LAYER, _per_layer(balances, net))
    shares = tuple(
        Sample((one.service, one.ep_group, str(rank), one.phase.value), share)
        for one in balances
        for rank, share in zip(one.ranks.tolist(), one.load_share.tolist(), strict=True)
        if math.isfinite(share)
    )
    yield FamilyState(p.RANK_LOAD_SHARE, (*RANK_LABELS, _PHASE), shares)


def _hot_experts(listed: tuple[ListedExpert, ...]) -> Iterator[FamilyState]:
    labels = (*_BY_LAYER, EXPERT_LABEL)
    places = [(one.service, one.ep_group, one.phase.value, str(one.layer), str(one.expert)) for one in listed]
    yield FamilyState(
        p.HOT_EXPERT_LOAD,
        (*labels, HARMFUL_LABEL),
        tuple(
            Sample((*place, "true" if one.is_harmful else "false"), one.times_median)
            for place, one in zip(places, listed, strict=True)
        ),
    )
    yield FamilyState(
        p.HOT_EXPERT_CAPACITY_SHARE,
        labels,
        tuple(
            Sample(place, one.capacity_share)
            for place, one in zip(places, listed, strict=True)
            if math.isfinite(one.capacity_share)
        ),
    )


def _closer_look(judgement: FleetJudgement) -> Iterator[FamilyState]:
    yield FamilyState(
        p.STRAGGLER,
        (*RANK_LABELS, KIND_LABEL),
        tuple(
            Sample((one.service, one.ep_group, str(one.ep_rank), one.kind), one.times_usual)
            for one in judgement.awaited
        ),
    )
    yield FamilyState(
        p.MEMORY_FULL_IN,
        (*RANK_LABELS, p.label_name(a.POOL)),
        tuple(
            Sample((one.service, one.ep_group, str(one.ep_rank), one.pool.value), one.seconds)
            for one in judgement.pool_ends
        ),
    )
    covers = judgement.covers
    yield FamilyState(
        p.FAILOVER_LOST_SHARE,
        RANK_LABELS,
        tuple(Sample((one.service, one.ep_group, str(one.ep_rank)), one.lost_share) for one in covers),
    )
    yield FamilyState(
        p.FAILOVER_UNCOVERED,
        GROUP_LABELS,
        tuple(Sample((one.service, one.ep_group), one.uncovered_share) for one in covers),
    )
    yield FamilyState(
        p.REPLAN_GAIN,
        (*GROUP_LABELS, _PHASE),
        tuple(Sample((one.service, one.ep_group, one.phase.value), one.gain) for one in judgement.replans),
    )


def _per_layer(balances: tuple[LayerBalance, ...], values: list[FloatArray]) -> tuple[Sample, ...]:
    return tuple(
        Sample((one.service, one.ep_group, one.phase.value, str(layer)), value)
        for one, row in zip(balances, values, strict=True)
        for layer, value in zip(one.layers.tolist(), row.tolist(), strict=True)
        if math.isfinite(value)
    )
