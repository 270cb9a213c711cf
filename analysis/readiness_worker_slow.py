"""Section ``partial_failure``: a worker that is slow, and the latency that is expected meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

from moescope.analysis import words
from moescope.analysis.readiness_check import Bound, Check, Section, Subject, Unit
from moescope.analysis.readiness_evidence import DelayForecast, GroupEvidence, Unknown
from moescope.analysis.readiness_protocol import WorkerDownRules, WorkerSlowRules


def judge_worker_slow(rules: WorkerSlowRules, group: GroupEvidence, scope: str) -> Iterator[Check]:
    """Is a worker slow now, and what if one were?"""
    yield _slow_now(rules, group, Subject(Section.PARTIAL_FAILURE, "worker_slow", scope))
    forecast = group.when_slow
    if rules.max_token_share is not None:
        subject = Subject(Section.PARTIAL_FAILURE, "worker_slow.max_token_share", scope)
        if isinstance(forecast, Unknown) or forecast.token_share is None:
            why = forecast.why if isinstance(forecast, Unknown) else forecast.evidence
            yield subject.not_checked(why)
        else:
            yield subject.compare(
                *(forecast.token_share, Bound.AT_MOST, rules.max_token_share, Unit.SHARE),
                evidence=forecast.evidence,
                action="Keep the experts of a token on fewer workers, or take a slow worker out quickly.",
            )
    yield from judge_delays("worker_slow", rules, forecast, scope)


def _slow_now(rules: WorkerSlowRules, group: GroupEvidence, subject: Subject) -> Check:
    slow = group.slow_workers
    if rules.rank is not None and group.has_no_rank(rules.rank):
        return subject.not_checked(
            f"Rank {rules.rank} is no rank that said which experts it holds.",
            "Correct worker_slow.rank, or leave it out to look at every rank.",
        )
    if isinstance(slow, Unknown):
        return subject.not_checked(slow.why)
    wanted = [one for one in slow if rules.rank is None or rules.rank in one.ranks]
    if not wanted:
        which = "No rank is" if rules.rank is None else f"Rank {rules.rank} is not"
        return subject.state(is_fine=True, evidence=f"{which} slower than the others now.", action="")
    worst, others = wanted[0], len(wanted) - 1
    more = f" {words.count(others, 'other')} {'is' if others == 1 else 'are'} slow too." if others else ""
    return subject.state(is_fine=False, evidence=f"{worst.evidence}{more}", action=worst.action)


def judge_delays(
    name: str, rules: WorkerDownRules | WorkerSlowRules, forecast: DelayForecast | Unknown, scope: str
) -> Iterator[Check]:
    """Hold predicted TTFT and TPOT against the limits that there are."""
    limits = {"max_ttft": rules.max_ttft_seconds, "max_tpot": rules.max_tpot_seconds}
    for key, limit in limits.items():
        if limit is None:
            continue
        subject = Subject(Section.PARTIAL_FAILURE, f"{name}.{key}", scope)
        if isinstance(forecast, Unknown):
            yield subject.not_checked(forecast.why)
            continue
        expected = forecast.ttft_seconds if key == "max_ttft" else forecast.tpot_seconds
        if expected is None:
            yield subject.not_checked(forecast.evidence)
            continue
        yield subject.compare(
            *(expected, Bound.AT_MOST, limit, Unit.SECONDS),
            evidence=forecast.evidence,
            action="Admit fewer requests meanwhile, or take the worker out of its group at once.",
        )
