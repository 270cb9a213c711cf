"""Sections ``memory`` and ``goodput``: is there room left, and do requests get what was promised?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.distribution import Distribution
from moescope.analysis.readiness_check import Bound, Check, Section, Subject, Unit
from moescope.analysis.readiness_evidence import GroupEvidence, ReadinessEvidence, Unknown
from moescope.analysis.readiness_protocol import FittingRequests, GoodputRules, MemoryRules
from moescope.schemas import metrics
from moescope.schemas.attributes import MemoryPool
from moescope.schemas.metrics import Metric

_POOL_ACTIONS: Final = {
    MemoryPool.KDA_STATE: "Admit fewer requests at once, or give KDA state more memory.",
    MemoryPool.MLA_KV_CACHE: "Admit shorter contexts or fewer requests, or give the cache more memory.",
    MemoryPool.TRANSFER: "Send less at once between prefill and decode, or give transfers more memory.",
}

_LOOK_AT_LATENCY: Final = (
    "`moescope report latency` shows whether they wait in the queue, for the first token or for the rest."
)


def judge_memory(rules: MemoryRules, group: GroupEvidence, scope: str) -> Iterator[Check]:
    """Judge each pool that grows on the rank where it is fullest, and the room for more requests."""
    if isinstance(group.pools, Unknown):
        yield Subject(Section.MEMORY, "max_used_ratio", scope).not_checked(group.pools.why)
    else:
        limited = group.pools.limited
        if not limited:
            yield Subject(Section.MEMORY, "max_used_ratio", scope).not_checked(
                "No rank reports a limit of a pool that grows: KDA state, MLA KV cache or transfer."
            )
        for pool in limited:
            fullest = group.pools.fullest_of(pool)
            if fullest is not None:
                yield Subject(Section.MEMORY, f"pools.{pool.value}", scope).compare(
                    *(fullest.ratio, Bound.AT_MOST, rules.max_used_ratio[pool], Unit.SHARE),
                    evidence=(
                        f"Fullest on rank {fullest.rank}: {words.binary_bytes(fullest.used_bytes)} of "
                        f"{words.binary_bytes(fullest.limit_bytes)}."
                    ),
                    action=_POOL_ACTIONS[pool],
                )
    if rules.requests_that_fit is not None:
        yield _judge_room(rules.requests_that_fit, group, Subject(Section.MEMORY, "requests_that_fit", scope))


def _judge_room(wanted: FittingRequests, group: GroupEvidence, subject: Subject) -> Check:
    if isinstance(group.room, Unknown):
        return subject.not_checked(group.room.why)
    if not group.room:
        return subject.not_checked("No engine says how much of its caches is free.")
    least = min(group.room, key=lambda one: one.fits)
    return subject.compare(
        *(least.fits, Bound.AT_LEAST, wanted.requests, Unit.REQUESTS),
        evidence=(
            f"{words.count(least.fits, 'more request')} of {words.integer(wanted.tokens)} tokens fit on "
            f"{words.listed('rank', least.ranks).lower()}, the fullest engine. {least.evidence}"
        ).strip(),
        action="Send long requests elsewhere, or keep more room: see `moescope report memory`.",
    )


def judge_goodput(rules: GoodputRules, evidence: ReadinessEvidence) -> Check:
    """Judge how many requests are good.

    Engines decide it for each request, under the settings' contract. For another one there are only the
    histograms of TTFT and TPOT, which say nothing of both in one request: P(both) lies between
    P(TTFT) + P(TPOT) − 1 and the smaller of the two (Fréchet's bounds).
    """
    subject = Subject(Section.GOODPUT, "min_share")
    ttft = rules.contract_ttft_seconds or evidence.contract_ttft_seconds
    tpot = rules.contract_tpot_seconds or evidence.contract_tpot_seconds
    contract = f"TTFT up to {words.seconds(ttft)} and TPOT up to {words.seconds(tpot)}"
    if (ttft, tpot) != (evidence.contract_ttft_seconds, evidence.contract_tpot_seconds):
        return _judge_other_contract(rules, evidence.latency, subject, ttft, tpot, contract)
    good = evidence.goodput
    if isinstance(good, Unknown):
        return subject.not_checked(good.why)
    if good.good_share is None or good.requests < rules.min_requests:
        return subject.not_checked(
            f"{words.count(good.requests, 'request')} finished in the window, of {rules.min_requests} needed."
        )
    return subject.compare(
        *(good.good_share, Bound.AT_LEAST, rules.min_share, Unit.SHARE),
        evidence=(
            f"{words.integer(good.good_requests)} of {words.count(good.requests, 'request')} kept {contract}."
        ),
        action=_LOOK_AT_LATENCY,
    )


def _judge_other_contract(  # noqa: PLR0917 - a contract is two limits, and what is judged by it
    rules: GoodputRules,
    latency: Mapping[Metric, Distribution],
    subject: Subject,
    ttft: float,
    tpot: float,
    contract: str,
) -> Check:
    counted = "Engines counted under another contract"
    shares = [
        share_within(latency.get(metric), limit)
        for metric, limit in ((metrics.TIME_TO_FIRST_TOKEN, ttft), (metrics.TIME_PER_OUTPUT_TOKEN, tpot))
    ]
    if any(share is None for share in shares):
        return subject.not_checked(f"{counted}, and the histograms of TTFT and TPOT do not reach so far.")
    first, rest = (share or 0.0 for share in shares)
    low, high = max(first + rest - 1, 0.0), min(first, rest)
    text = (
        f"{counted}. By the histograms {words.percent(first)} kept TTFT and {words.percent(rest)} TPOT, so "
        f"{words.percent(low)} to {words.percent(high)} kept {contract}."
    )
    if low < rules.min_share <= high:
        return subject.not_checked(
            text, "Set MOESCOPE_CONTRACT_TTFT_SECONDS and _TPOT_SECONDS in the engines as in the protocol."
        )
    return subject.compare(
        *(low if low >= rules.min_share else high, Bound.AT_LEAST, rules.min_share, Unit.SHARE),
        evidence=text,
        action=_LOOK_AT_LATENCY,
    )


def share_within(distribution: Distribution | None, limit: float) -> float | None:
    """Part of the observations up to ``limit``, by the known quantiles; None where they do not tell."""
    if distribution is None or not distribution.whole.observations:
        return None
    whole = distribution.whole
    known = [(whole.p50, 0.5), (whole.p90, 0.9), (whole.p99, 0.99)]
    if any(np.isnan(value) for value, _ in known):
        return None
    values = [0.0, *(value for value, _ in known)]
    shares = [0.0, *(share for _, share in known)]
    if limit >= values[-1]:
        return None if whole.is_capped else 0.99
    return float(np.interp(limit, values, shares))
