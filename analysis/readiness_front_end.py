"""``partial_failure.router_down``: a front end takes no requests for a while, then all at once."""

from __future__ import annotations

from collections.abc import Iterator

from moescope.analysis import words
from moescope.analysis.readiness_check import Bound, Check, Section, Subject, Unit
from moescope.analysis.readiness_evidence import ReadinessEvidence, Unknown
from moescope.analysis.readiness_protocol import RouterDownRules
from moescope.schemas import metrics


def judge_router_down(rules: RouterDownRules, evidence: ReadinessEvidence) -> Iterator[Check]:
    """Judge the loss of the busiest front end.

    A request that is held back when the outage begins waits all of it, and then as long as any. Those after
    it wait less of it and queue behind it; while prefill has capacity left, they gain more than they queue.
    So the longest time to first token is the outage and what is usual, the 90th percentile.
    """
    if rules.max_request_share is None and rules.max_ttft_seconds is None:
        subject = Subject(Section.PARTIAL_FAILURE, "router_down")
        yield subject.not_checked("The protocol sets no limit.", "Write max_request_share or max_ttft.")
    if rules.max_request_share is not None:
        yield _share(rules.max_request_share, evidence)
    if rules.max_ttft_seconds is not None:
        yield _longest(rules, rules.max_ttft_seconds, evidence)


def _share(limit: float, evidence: ReadinessEvidence) -> Check:
    subject = Subject(Section.PARTIAL_FAILURE, "router_down.max_request_share")
    requests = evidence.requests_by_front_end
    if isinstance(requests, Unknown):
        return subject.not_checked(requests.why)
    total = sum(requests.values())
    if not total:
        return subject.not_checked("No request finished in the window.")
    busiest = max(requests, key=lambda instance: requests[instance])
    share = requests[busiest] / total
    return subject.compare(
        *(share, Bound.AT_MOST, limit, Unit.SHARE),
        evidence=(
            f"{words.percent(share)} of {words.count(total, 'request')} came through one of "
            f"{words.count(len(requests), 'front end')}, {busiest[:8]}."
        ),
        action="Put more front ends behind the gateway, and let it spread requests evenly.",
    )


def _longest(rules: RouterDownRules, limit: float, evidence: ReadinessEvidence) -> Check:
    subject = Subject(Section.PARTIAL_FAILURE, "router_down.max_ttft")
    ttft = evidence.latency.get(metrics.TIME_TO_FIRST_TOKEN)
    if ttft is None or not ttft.whole.observations or ttft.whole.p90 != ttft.whole.p90:
        return subject.not_checked("No time to first token was reported in the window.")
    usual = ttft.whole.p90
    return subject.compare(
        *(rules.outage_seconds + usual, Bound.AT_MOST, limit, Unit.SECONDS),
        evidence=(
            f"A request held back for {words.duration(rules.outage_seconds)} waits {words.seconds(usual)} "
            "more, which nine in ten do not exceed now, if prefill has capacity left."
        ),
        action="Have the gateway send requests to another front end sooner than that.",
    )
