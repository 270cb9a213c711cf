"""Section ``load_balance_check``: how even is the work of the workers, and which expert makes it uneven?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.hot_experts import HotExpert
from moescope.analysis.imbalance import Imbalance, Verdict
from moescope.analysis.placement import PlacementSnapshot
from moescope.analysis.readiness_check import Bound, Check, Section, Subject, Unit
from moescope.analysis.readiness_evidence import GroupEvidence, Unknown
from moescope.analysis.readiness_protocol import BalanceRules, ImbalanceMeasure, Remedy
from moescope.schemas.settings import Settings

_NAMES: Final = ("acceptable_imbalance_ratio", "hot_experts")
_SHOWN_EXPERTS: Final = 3
_UNITS: Final = {
    ImbalanceMeasure.MAX_OVER_MEAN: Unit.MAX_OVER_MEAN,
    ImbalanceMeasure.MEAN_OVER_MAX: Unit.MEAN_OVER_MAX,
    ImbalanceMeasure.MAX_OVER_MEAN_MINUS_1: Unit.MAX_OVER_MEAN_MINUS_1,
}


def judge_balance(
    rules: BalanceRules, group: GroupEvidence, scope: str, settings: Settings
) -> Iterator[Check]:
    """Judge each phase for itself; ``group.loads`` was assessed under the protocol's limits."""
    for phase in rules.phases:
        where = f"{scope}, {phase.value}" if scope else phase.value
        ratio, hot = (Subject(Section.LOAD_BALANCE, name, where) for name in _NAMES)
        if isinstance(group.loads, Unknown):
            yield ratio.not_checked(group.loads.why)
            yield hot.not_checked(group.loads.why)
            continue
        load = group.loads.get(phase)
        if load is None or not load.window.tokens.any():
            why = f"no {phase.value} was counted in the window"
            yield ratio.not_checked(f"{why}.")
            yield hot.not_checked(f"{why}.")
            continue
        yield _judge_ratio(rules, load, ratio, settings, group.plan_options)
        yield _judge_hot(rules, load, hot, group.plan_options)


def _judge_ratio(
    rules: BalanceRules, load: LoadAssessment, subject: Subject, settings: Settings, plan_options: str
) -> Check:
    imbalance, placement = load.imbalance, load.placement
    if imbalance is None or placement is None:
        return subject.not_checked(
            "No rank has said which experts it holds, so the load of ranks is unknown."
        )
    has_verdict = np.array([verdict is not Verdict.TOO_LITTLE_DATA for verdict in imbalance.verdicts])
    if not has_verdict.any():
        return subject.not_checked(
            f"Too little load: a rank has {words.compact(float(imbalance.rank_loads.mean()))} assignments "
            f"in a layer, and {settings.min_mean_rank_load:g} independent ones are needed for a verdict.",
            "Look at a longer --window, or record more passes.",
        )
    net = np.where(has_verdict, imbalance.net_ratio, -np.inf)
    worst = int(net.argmax())
    measure = rules.measure
    is_inverse = measure is ImbalanceMeasure.MEAN_OVER_MAX
    num_over = int((net > rules.max_ratio).sum())
    return subject.compare(
        measure.of_ratio(float(net[worst])),
        Bound.AT_LEAST if is_inverse else Bound.AT_MOST,
        rules.acceptable_imbalance_ratio,
        _UNITS[measure],
        evidence=_describe_worst(load, imbalance, placement, worst, num_over),
        action=_remedy(rules.action, load, plan_options),
    )


def _describe_worst(
    load: LoadAssessment, imbalance: Imbalance, placement: PlacementSnapshot, worst: int, num_over: int
) -> str:
    rank = placement.ranks[imbalance.hottest_rank[worst]]
    text = (
        f"Layer {load.window.layers[worst]} is least even: rank {rank} computes "
        f"{imbalance.ratio[worst]:.2f} × the mean of {words.count(len(placement.ranks), 'rank')}"
    )
    floor = float(imbalance.noise_floor[worst])
    text += f" ({imbalance.net_ratio[worst]:.2f} net of chance, which alone shows {floor:.2f})"
    if num_over:
        text += f"; {num_over} of {len(imbalance.ratio)} layers are beyond the limit"
    cause = next(
        (
            one
            for one in load.hot_experts.top(len(load.hot_experts))
            if one.layer == load.window.layers[worst]
        ),
        None,
    )
    if num_over and cause is not None and cause.relief > 0:
        text += f". Without expert {cause.expert} it would be {imbalance.ratio[worst] - cause.relief:.2f}"
    return f"{text}."


def _judge_hot(rules: BalanceRules, load: LoadAssessment, subject: Subject, plan_options: str) -> Check:
    hot, limits = load.hot_experts, rules.hot_experts
    if load.placement is None:
        return subject.not_checked(
            "No rank has said which experts it holds, so what a hot one does is unknown."
        )
    if np.isnan(load.design_effect).all():
        return subject.not_checked(
            "Nearly all the load lies in one interval, so chance cannot be told from heat.",
            "Look at a longer --window, or record more passes.",
        )
    harmful = hot.top(hot.num_harmful)
    found = f"{words.count(len(hot), 'expert')} above {limits.times_median:g} × the median"
    if harmful:
        shown = "; ".join(_describe_expert(one, load.placement, load) for one in harmful[:_SHOWN_EXPERTS])
        more = f"; and {len(harmful) - _SHOWN_EXPERTS} more" if len(harmful) > _SHOWN_EXPERTS else ""
        text = (
            f"{shown[0].upper()}{shown[1:]}{more}. {found} in all, {len(harmful)} harmful by this protocol."
        )
    else:
        largest = max(hot.capacity_share.tolist(), default=0.0)
        text = f"{found}, none of them harmful: the largest takes {words.percent(largest)} of a worker."
    return subject.compare(
        len(harmful),
        Bound.AT_MOST,
        limits.max_harmful,
        Unit.EXPERTS,
        evidence=text,
        action=_remedy(rules.action, load, plan_options, harmful[0] if harmful else None),
    )


def _describe_expert(one: HotExpert, placement: PlacementSnapshot, load: LoadAssessment) -> str:
    row = load.window.row_of_layer(one.layer)
    ranks = placement.ranks_of(0 if row is None else row, one.expert).tolist()
    where = words.listed("rank", ranks).lower() if ranks else "no rank"
    return (
        f"layer {one.layer}, expert {one.expert} ({where}) gets {words.compact(one.times_median)} × the "
        f"median; one copy takes {words.percent(one.capacity_share)} of a worker's even share of the layer"
    )


def _remedy(remedy: Remedy, load: LoadAssessment, plan_options: str, worst: HotExpert | None = None) -> str:
    if remedy is Remedy.REBALANCE:
        return f"Move experts: `moescope plan {plan_options} --max-moved 5%`."
    if remedy is Remedy.ALERT:
        service = load.window.scope.service
        return f"Tell who operates {service}; `moescope report hotspots` has the rest."
    which = "hot experts" if worst is None else f"expert {worst.expert} of layer {worst.layer}"
    placement = load.placement
    more = 0 if placement is None else placement.redundant_experts + placement.ep_size
    return f"Give {which} more copies: `moescope plan {plan_options} --redundant-experts {more}`."
