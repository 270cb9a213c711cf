"""Section ``expert_placement``: are the experts where the protocol says, and what covers for a worker?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.failover_impact import FailoverStrategy
from moescope.analysis.placement import PlacementSnapshot
from moescope.analysis.readiness_check import Bound, Check, Section, Subject, Unit
from moescope.analysis.readiness_evidence import GroupEvidence, Unknown
from moescope.analysis.readiness_protocol import PlacementRules
from moescope.schemas.records import IntArray

_CHECKS = ("total_experts", "workers", "experts_per_worker", "redundant_experts", "failover_strategy")
_NO_PLACEMENT = "No rank has said which experts it holds."
_SEND_PLACEMENT = (
    "Attach moescope to every rank; each sends its placement with its first window. "
    "`moescope report quality` shows who reports."
)
_NOT_RECORDED = "The recording does not say where the experts are."
_GIVE_PLACEMENT = "Give the placement that was in use with --placement FILE."


def judge_placement(
    rules: PlacementRules, group: GroupEvidence, scope: str, *, has_worker_down: bool
) -> Iterator[Check]:
    """Judge where the experts are.

    Args:
        rules: of the protocol.
        group: what is known.
        scope: its name in the report.
        has_worker_down: the protocol limits what a lost worker may cost. Without that every expert needs a
            copy on a second worker under ``reassign_to_redundant_worker``.
    """
    if isinstance(group.loads, Unknown):
        for name in _CHECKS:
            yield Subject(Section.EXPERT_PLACEMENT, name, scope).not_checked(group.loads.why)
        return
    load = next(iter(group.loads.values()))
    yield _total(rules, load, Subject(Section.EXPERT_PLACEMENT, "total_experts", scope))
    if load.placement is None or group.is_placement_assumed:
        why = (
            (_NOT_RECORDED, _GIVE_PLACEMENT)
            if group.is_placement_assumed
            else (_NO_PLACEMENT, _SEND_PLACEMENT)
        )
        for name in _CHECKS[1:]:
            yield Subject(Section.EXPERT_PLACEMENT, name, scope).not_checked(*why)
        return
    layers, placement = load.window.layers, load.placement
    yield _workers(rules, placement, Subject(Section.EXPERT_PLACEMENT, "workers", scope))
    yield _held(rules, placement, layers, Subject(Section.EXPERT_PLACEMENT, "experts_per_worker", scope))
    yield _redundant(rules, placement, layers, Subject(Section.EXPERT_PLACEMENT, "redundant_experts", scope))
    yield _strategy(
        rules,
        load,
        placement,
        Subject(Section.EXPERT_PLACEMENT, "failover_strategy", scope),
        plan_options=group.plan_options,
        needs_all=not has_worker_down,
    )


def _total(rules: PlacementRules, load: LoadAssessment, subject: Subject) -> Check:
    experts = load.window.scope.experts
    return subject.compare(
        experts,
        Bound.EXACTLY,
        rules.total_experts,
        Unit.EXPERTS,
        evidence=f"{words.count(len(load.window.layers), 'MoE layer')} of {words.count(experts, 'expert')}.",
        action="Another model is served than the protocol is for: correct total_experts, or --service.",
    )


def _workers(rules: PlacementRules, placement: PlacementSnapshot, subject: Subject) -> Check:
    reporting, missing = len(placement.ranks), placement.missing_ranks
    text = f"{words.count(reporting, 'rank')} of a group of {placement.ep_size} said which experts they hold"
    action = "Start the engine with so many workers, or correct `workers`."
    if len(missing):
        text += f"; {words.listed('rank', missing.tolist())} did not"
        action = (
            "Start the missing workers, or correct `workers`: `moescope report quality` names the silent."
        )
    return subject.compare(
        reporting,
        Bound.EXACTLY,
        rules.workers,
        Unit.RANKS,
        evidence=f"{text}.",
        action=action,
    )


def _held(rules: PlacementRules, placement: PlacementSnapshot, layers: IntArray, subject: Subject) -> Check:
    """Slots of a worker are its experts and its part of the redundant copies, of all that there are."""
    held = placement.replicas.sum(axis=2, dtype=np.int64)
    redundant = max(rules.redundant_experts, placement.redundant_experts)
    slots = -(-(rules.total_experts + redundant) // rules.workers)
    fewest = (rules.total_experts + redundant) // rules.workers
    wrong = (held > slots) | (held < fewest)
    rank, layer = np.unravel_index(int(np.abs(held - slots).argmax()), held.shape)
    of_rules = f"{rules.experts_per_worker} of {rules.total_experts}"
    if redundant:
        of_rules += f" and a part of {words.integer(redundant)} redundant"
    if wrong.any():
        text = (
            f"Rank {placement.ranks[rank]} holds {words.copies(int(held[rank, layer]))} in layer "
            f"{layers[layer]}, where {slots} are meant ({of_rules}); so it is in "
            f"{words.integer(int(wrong.sum()))} of {words.integer(wrong.size)} pairs of rank and layer."
        )
    else:
        number = str(slots) if fewest == slots else f"{fewest} or {slots}"
        text = f"Every rank holds {number} in every layer ({of_rules})."
    return subject.compare(
        int(held[rank, layer]) if wrong.any() else slots,
        Bound.EXACTLY,
        slots,
        Unit.EXPERTS,
        evidence=text,
        action="Start the engine with the placement that is meant, or correct the protocol.",
    )


def _redundant(
    rules: PlacementRules, placement: PlacementSnapshot, layers: IntArray, subject: Subject
) -> Check:
    copies = placement.replicas.sum(axis=0, dtype=np.int64)
    unplaced = int((copies == 0).sum())
    beyond = np.maximum(copies - 1, 0).sum(axis=1)
    fewest = int(beyond.argmin())
    text = f"Layer {layers[fewest]} has the fewest second copies: {int(beyond[fewest])}."
    if not beyond.any():
        text = "No expert has a second copy."
    elif int(beyond.min()) == int(beyond.max()):
        text = f"Every layer has {words.copies(int(beyond[0]))} beyond the first of each expert."
    if unplaced:
        text += f" {words.count(unplaced, 'expert')} of all layers are on no rank that reported."
    return subject.compare(
        *(int(beyond[fewest]), Bound.AT_LEAST, rules.redundant_experts, Unit.EXPERTS),
        evidence=text,
        action=(
            "Start the engine with so many redundant experts (vLLM: num_redundant_experts of eplb-config, "
            "SGLang: --ep-num-redundant-experts)."
        ),
    )


def _strategy(
    rules: PlacementRules,
    load: LoadAssessment,
    placement: PlacementSnapshot,
    subject: Subject,
    *,
    plan_options: str,
    needs_all: bool,
) -> Check:
    if rules.failover_strategy is not FailoverStrategy.REASSIGN:
        meaning = {
            FailoverStrategy.BLOCK: "tokens of experts without another copy wait until the worker is back",
            FailoverStrategy.FALLBACK: "the next best expert computes the tokens of one without another copy",
        }[rules.failover_strategy]
        return subject.state(is_fine=True, evidence=f"{rules.failover_strategy.value}: {meaning}.", action="")
    workers_of = (placement.replicas > 0).sum(axis=0)
    is_covered = workers_of > 1
    tokens = load.window.tokens
    share = float(is_covered.mean())
    carried = float(tokens[is_covered].sum() / tokens.sum()) if tokens.any() else 0.0
    text = (
        f"{words.percent(share)} of the experts, with {words.percent(carried)} of the load, have a copy on a "
        "second worker"
    )
    if not is_covered.any():
        text = (
            f"Not one of {words.integer(is_covered.size)} experts (all layers) has a copy on a second "
            "worker: there is nothing to reassign tokens to"
        )
    action = (
        f"Add redundant copies: {rules.total_experts} cover every expert, fewer the busiest (`moescope plan "
        f"{plan_options} --redundant-experts N`); or choose failover_strategy: block or fallback_expert."
    )
    if needs_all:
        return subject.compare(*(share, Bound.AT_LEAST, 1.0, Unit.SHARE), evidence=f"{text}.", action=action)
    return subject.state(is_fine=bool(is_covered.any()), evidence=f"{text}.", action=action)
