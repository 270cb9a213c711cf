"""Section ``expert_metrics``: is what a person would need to see of each expert exported, and fresh?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from moescope.analysis import words
from moescope.analysis.readiness_check import Bound, Check, Section, Subject, Unit
from moescope.analysis.readiness_evidence import GroupEvidence, Unknown
from moescope.analysis.readiness_protocol import ExpertMetric, MetricRules

_WORDS: Final = {
    ExpertMetric.ACTIVATION_COUNT: "activation counts",
    ExpertMetric.LATENCY: "expert times",
    ExpertMetric.MEMORY: "placement and expert sizes",
    ExpertMetric.FAILOVER_COUNT: "failover counts",
}
_ACTIONS: Final = {
    ExpertMetric.ACTIVATION_COUNT: "Attach moescope to the engine: `moescope doctor` says what is missing.",
    ExpertMetric.LATENCY: "Time some passes: MOESCOPE_TIMING_SAMPLE above 0, where the engine can.",
    ExpertMetric.MEMORY: (
        "Ranks repeat it every MOESCOPE_SNAPSHOT_EVERY_WINDOWS windows: allow more age, or repeat more often."
    ),
    ExpertMetric.FAILOVER_COUNT: "Write `failover_count: false` where no other copy can serve.",
}


def judge_metrics(rules: MetricRules, group: GroupEvidence, scope: str) -> Iterator[Check]:
    """Judge the age of each number that the protocol needs: of the rank that is furthest behind."""
    for metric, max_age in rules.max_age_seconds.items():
        subject = Subject(Section.EXPERT_METRICS, metric.value, scope)
        ages = (
            group.ages
            if isinstance(group.ages, Unknown)
            else group.ages.get(metric, Unknown("not looked at"))
        )
        if isinstance(ages, Unknown):
            yield subject.not_checked(ages.why)
            continue
        yield _judge_age(metric, ages, max_age, subject)


def _judge_age(metric: ExpertMetric, ages: Mapping[int, float], max_age: float, subject: Subject) -> Check:
    what = _WORDS[metric]
    if not ages:
        return subject.state(is_fine=False, evidence=f"No rank exports {what}.", action=_ACTIONS[metric])
    late = sorted(rank for rank, age in ages.items() if age > max_age)
    oldest = max(ages, key=lambda rank: ages[rank])
    if metric is ExpertMetric.FAILOVER_COUNT:
        last = min(ages, key=lambda rank: ages[rank])
        text = f"The newest failover was counted by rank {last}, {_age(ages[last])} ago."
        return subject.state(is_fine=True, evidence=text, action="")
    ranks = f"{words.count(len(ages), 'rank')} export{'s' if len(ages) == 1 else ''}"
    text = f"{ranks} {what}; the newest of rank {oldest} are {_age(ages[oldest])} old"
    if late and len(late) < len(ages):
        text += f". {words.listed('rank', late)} {'is' if len(late) == 1 else 'are'} late, the others are not"
    return subject.compare(
        *(max(ages[oldest], 0.0), Bound.AT_MOST, max_age, Unit.SECONDS),
        evidence=f"{text}.",
        action=_find_out(late, len(ages)),
    )


def _find_out(late: list[int], num_ranks: int) -> str:
    if len(late) == num_ranks:
        return (
            "Nothing new comes from any rank: does the fleet run, and does its endpoint? `moescope doctor`."
        )
    return (
        f"Nothing new comes from {words.listed('rank', late).lower()}: `moescope report quality`."
        if late
        else ""
    )


def _age(seconds: float) -> str:
    return words.duration(max(seconds, 0.0))
