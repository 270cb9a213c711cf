"""What the analysis says of a fleet, as families of a page."""

from __future__ import annotations

import math

from moescope.exporters.prometheus_state import FamilyState, Sample
from moescope.schemas import attributes as a
from moescope.schemas.fleet import FleetJudgement, LayerBalance
from moescope.schemas.page_metrics import (
    EXPERT_LABEL,
    FINDINGS,
    GROUP_LABELS,
    HARMFUL_LABEL,
    HOT_EXPERT_LOAD,
    KIND_LABEL,
    LAYER_IMBALANCE,
    LAYER_IMBALANCE_NET,
    RANK_LABELS,
    RANK_LOAD_SHARE,
    label_name,
)
from moescope.schemas.records import FloatArray

_BY_LAYER = (*GROUP_LABELS, label_name(a.PHASE), label_name(a.LAYER))


def judged_families(judgement: FleetJudgement, *, hot_experts: int) -> tuple[FamilyState, ...]:
    """Return the families of a judgement, without the numbers that are not known (NaN).

    Args:
        judgement: what the analysis says.
        hot_experts: most samples of the list of hot experts.
    """
    balances = judgement.balances
    return (
        FamilyState(LAYER_IMBALANCE, _BY_LAYER, _per_layer(balances, [one.ratio for one in balances])),
        FamilyState(
            LAYER_IMBALANCE_NET, _BY_LAYER, _per_layer(balances, [one.net_ratio for one in balances])
        ),
        FamilyState(
            RANK_LOAD_SHARE,
            (*RANK_LABELS, label_name(a.PHASE)),
            tuple(
                Sample((one.service, one.ep_group, str(rank), one.phase.value), share)
                for one in balances
                for rank, share in zip(one.ranks.tolist(), one.load_share.tolist(), strict=True)
                if math.isfinite(share)
            ),
        ),
        FamilyState(
            HOT_EXPERT_LOAD,
            (*_BY_LAYER, EXPERT_LABEL, HARMFUL_LABEL),
            tuple(
                Sample(
                    (
                        *(one.service, one.ep_group, one.phase.value, str(one.layer), str(one.expert)),
                        "true" if one.is_harmful else "false",
                    ),
                    one.times_median,
                )
                for one in judgement.hot_experts[:hot_experts]
            ),
        ),
        FamilyState(
            FINDINGS,
            (*GROUP_LABELS, KIND_LABEL),
            tuple(
                Sample((one.service, one.ep_group, one.kind.value), float(one.count))
                for one in judgement.findings
            ),
        ),
    )


def _per_layer(balances: tuple[LayerBalance, ...], values: list[FloatArray]) -> tuple[Sample, ...]:
    return tuple(
        Sample((one.service, one.ep_group, one.phase.value, str(layer)), value)
        for one, row in zip(balances, values, strict=True)
        for layer, value in zip(one.layers.tolist(), row.tolist(), strict=True)
        if math.isfinite(value)
    )
