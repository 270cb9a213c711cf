"""Section ``partial_failure``: what the loss or the slowness of a part does. Nothing is switched off."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.failover_impact import FailoverImpact, FailoverStrategy, lose_ranks
from moescope.analysis.failover_share import share_of_requests_hit
from moescope.analysis.placement import PlacementSnapshot
from moescope.analysis.readiness_check import Bound, Check, Section, Subject, Unit
from moescope.analysis.readiness_evidence import GroupEvidence, Unknown
from moescope.analysis.readiness_protocol import WorkerDownRules
from moescope.analysis.readiness_worker_slow import judge_delays
from moescope.schemas.attributes import Phase

_WHAT_HAPPENS: Final = {
    FailoverStrategy.REASSIGN: "with nothing to reassign them to until they are loaded again",
    FailoverStrategy.BLOCK: "and they wait until the worker is back",
    FailoverStrategy.FALLBACK: "and the next best expert computes them",
}


@dataclass(frozen=True, slots=True)
class WorkerLoss:
    """One rank lost in one phase; ``rank`` is an EP rank and ``impact`` what it does."""

    rank: int
    phase: Phase
    load: LoadAssessment
    impact: FailoverImpact


def judge_worker_down(
    rules: WorkerDownRules, strategy: FailoverStrategy, group: GroupEvidence, scope: str
) -> Iterator[Check]:
    """Lose each rank in turn, in each phase, and judge the worst of them."""
    traffic = Subject(Section.PARTIAL_FAILURE, "worker_down.max_traffic_share", scope)
    # What is lost at once does not depend on loading experts again, which takes long to work out.
    at_once = FailoverStrategy.BLOCK if strategy is FailoverStrategy.REASSIGN else strategy
    losses = lose_each_worker(rules, at_once, group)
    if isinstance(losses, Unknown):
        yield traffic.not_checked(losses.why)
        return
    worst = max(losses, key=lambda one: one.impact.traffic_share)
    yield traffic.compare(
        worst.impact.traffic_share,
        Bound.AT_MOST,
        rules.max_traffic_share,
        Unit.SHARE,
        evidence=_describe_loss(worst, strategy),
        action=_more_copies(worst, group.plan_options),
    )
    yield from _hit_shares(rules, losses, group, scope)
    if rules.max_imbalance_ratio is not None:
        yield _ratio_after(rules.max_imbalance_ratio, losses, strategy, group, scope)
    yield from judge_delays("worker_down", rules, group.when_down, scope)


def lose_each_worker(
    rules: WorkerDownRules, strategy: FailoverStrategy, group: GroupEvidence
) -> tuple[WorkerLoss, ...] | Unknown:
    """What the loss of each rank of the protocol does in each phase."""
    if isinstance(group.loads, Unknown):
        return group.loads
    if isinstance(group.top_k, Unknown):
        return group.top_k
    losses = [
        WorkerLoss(rank, phase, load, impact)
        for phase, load in group.loads.items()
        if load.placement is not None and load.window.tokens.any()
        for row, rank in enumerate(load.placement.ranks.tolist())
        if rules.ranks is None or rank in rules.ranks
        for impact in [_lose(load, row, group.top_k, strategy)]
    ]
    return tuple(losses) or Unknown("No rank that the protocol names has said which experts it holds.")


def _lose(load: LoadAssessment, row: int, top_k: int, strategy: FailoverStrategy) -> FailoverImpact:
    replicas = np.empty(0, dtype=np.uint16) if load.placement is None else load.placement.replicas
    return lose_ranks(load.window.tokens, replicas, [row], top_k=top_k, strategy=strategy)


def _describe_loss(loss: WorkerLoss, strategy: FailoverStrategy) -> str:
    impact = loss.impact
    held = impact.lost_experts + impact.covered_experts
    layer = int(held.argmax())
    experts = impact.is_lost.shape[1]
    text = f"If rank {loss.rank} fails, {int(held[layer])} of {experts} experts of a layer go"
    lost = int(impact.lost_experts[layer])
    if not impact.lost_experts.any():
        return f"{text} and each has a copy elsewhere: no token loses its expert."
    which = (
        "none of them has a copy elsewhere"
        if lost == int(held[layer])
        else f"{lost} of them without another copy"
    )
    return (
        f"{text}; {which}: {words.percent(impact.traffic_share)} of the assignments of {loss.phase.value} "
        f"lose their expert, {_WHAT_HAPPENS[strategy]}."
    )


def _more_copies(loss: WorkerLoss, plan_options: str) -> str:
    """Second copies for everything that is lost, or the limit: nothing between helps for certain."""
    placement = loss.load.placement
    single = 0 if placement is None else int(((placement.replicas > 0).sum(axis=0) == 1).sum(axis=1).max())
    there = 0 if placement is None else placement.redundant_experts
    return (
        f"A second copy of every expert takes {there + single} redundant experts a layer ({there} now): "
        f"`moescope plan {plan_options} --redundant-experts N` says what N cover. Or accept more with "
        "max_traffic_share."
    )


def _hit_shares(
    rules: WorkerDownRules, losses: tuple[WorkerLoss, ...], group: GroupEvidence, scope: str
) -> Iterator[Check]:
    worst = max(losses, key=lambda one: one.impact.tokens_hit.expected)
    hit = worst.impact.tokens_hit
    text = (
        f"If rank {worst.rank} fails, {words.percent(max(hit.expected, 0.0))} of the tokens of "
        f"{worst.phase.value} need an expert without another copy in one layer or more"
    )
    action = (
        "Only copies of every expert on a second worker help: one lost expert in any layer hits the token."
    )
    if rules.max_token_share is not None:
        yield Subject(Section.PARTIAL_FAILURE, "worker_down.max_token_share", scope).compare(
            *(hit.expected, Bound.AT_MOST, rules.max_token_share, Unit.SHARE),
            evidence=f"{text}.",
            action=action,
        )
    if rules.max_request_share is None:
        return
    subject = Subject(Section.PARTIAL_FAILURE, "worker_down.max_request_share", scope)
    if isinstance(group.tokens_per_request, Unknown):
        yield subject.not_checked(group.tokens_per_request.why)
        return
    share = max(share_of_requests_hit(hit, group.tokens_per_request).independent, 0.0)
    yield subject.compare(
        *(share, Bound.AT_MOST, rules.max_request_share, Unit.SHARE),
        evidence=(
            f"{text}; of requests of {words.compact(group.tokens_per_request)} output tokens "
            f"{words.percent(share)} have such a token."
        ),
        action=action,
    )


def _ratio_after(
    limit: float,
    losses: tuple[WorkerLoss, ...],
    strategy: FailoverStrategy,
    group: GroupEvidence,
    scope: str,
) -> Check:
    """Of the worker with most load in each phase: what it computed is what the others get."""
    subject = Subject(Section.PARTIAL_FAILURE, "worker_down.max_imbalance_ratio", scope)
    heaviest = {
        phase: max((one for one in losses if one.phase is phase), key=_load_of)
        for phase in {one.phase for one in losses}
    }
    after = [_with_strategy(one, strategy, group) for one in heaviest.values()]
    worst = max(after, key=lambda one: float(one.impact.ratio_after.max(initial=0.0)))
    row = int(worst.impact.ratio_after.argmax())
    busiest = _busiest(worst, worst.load.placement, row)
    when = " once lost experts are loaded again" if worst.impact.reload is not None else ""
    return subject.compare(
        *(float(worst.impact.ratio_after[row]), Bound.AT_MOST, limit, Unit.MAX_OVER_MEAN),
        evidence=(
            f"If rank {worst.rank} fails, rank {busiest} computes {worst.impact.ratio_after[row]:.2f} × the "
            f"mean of those that are left{when}, in layer {worst.load.window.layers[row]} of "
            f"{worst.phase.value} ({worst.impact.ratio_before[row]:.2f} × before)."
        ),
        action=(
            f"Spread second copies over more workers: `moescope plan {group.plan_options}` with more "
            "--redundant-experts."
        ),
    )


def _load_of(loss: WorkerLoss) -> float:
    return loss.impact.traffic_share + loss.impact.taken_over_share


def _with_strategy(loss: WorkerLoss, strategy: FailoverStrategy, group: GroupEvidence) -> WorkerLoss:
    if loss.impact.strategy is strategy or isinstance(group.top_k, Unknown):
        return loss
    row = int(loss.impact.lost_ranks[0])
    return dataclasses.replace(loss, impact=_lose(loss.load, row, group.top_k, strategy))


def _busiest(loss: WorkerLoss, placement: PlacementSnapshot | None, row: int) -> int:
    position = int(np.argmax(loss.impact.rank_loads_after[row]))
    return position if placement is None else int(placement.ranks[position])
