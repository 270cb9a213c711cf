"""What a readiness protocol is judged by: numbers from a store or a recording, or why there are none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.distribution import Distribution
from moescope.analysis.memory import PoolMemory
from moescope.analysis.readiness_protocol import ExpertMetric
from moescope.analysis.requests import Goodput
from moescope.schemas.attributes import Phase
from moescope.schemas.metrics import Metric


@dataclass(frozen=True, slots=True)
class Unknown:
    """What cannot be said, and why: a sentence."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowWorker:
    """A rank, or a node or link of several, that the others wait for now.

    Attributes:
        evidence: what shows it, sentences.
        action: what to do.
    """

    ranks: tuple[int, ...]
    evidence: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayForecast:
    """What is expected of latency under one failure; None where it cannot be predicted.

    Attributes:
        rank: whose failure does most.
        token_share: part of the tokens that it hits, 0 to 1.
        ttft_seconds, tpot_seconds: of the mean request meanwhile.
        evidence: how that was computed, a sentence.
    """

    rank: int
    token_share: float | None
    ttft_seconds: float | None
    tpot_seconds: float | None
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """More requests of the protocol's length that fit one engine.

    Attributes:
        ranks: EP ranks of the engine.
        fits: how many.
        evidence: what binds, a sentence.
    """

    ranks: tuple[int, ...]
    fits: int
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEvidence:
    """One expert-parallel group.

    Attributes:
        plan_options: how `moescope plan` is told of the same load.
        loads: by phase, judged under the protocol's limits; those with data.
        is_placement_assumed: nobody said where the experts are; they are taken in order.
        top_k: experts per token.
        tokens_per_request: output tokens of the mean request.
        slow_workers: who is slow now, the costliest first; none if empty.
        when_slow, when_down: latency if a rank became ``factor`` times slower, or failed.
        ages: of each number, by rank: seconds since the newest; empty where none ever came.
        pools: newest memory by rank.
        room: of each engine.
    """

    ep_group: str
    plan_options: str
    loads: Mapping[Phase, LoadAssessment] | Unknown
    is_placement_assumed: bool = False
    top_k: int | Unknown
    tokens_per_request: float | Unknown
    slow_workers: tuple[SlowWorker, ...] | Unknown
    when_slow: DelayForecast | Unknown
    when_down: DelayForecast | Unknown
    ages: Mapping[ExpertMetric, Mapping[int, float] | Unknown] | Unknown
    pools: PoolMemory | Unknown
    room: tuple[Room, ...] | Unknown

    def has_no_rank(self, rank: int) -> bool:
        """Whether the ranks are known, and this is none of them."""
        if isinstance(self.loads, Unknown):
            return False
        placements = [one.placement for one in self.loads.values() if one.placement is not None]
        return bool(placements) and not any(rank in one.ranks for one in placements)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessEvidence:
    """Everything that is known of a deployment.

    Attributes:
        source: where it is from, in words: ``kimi-k3, 15 min to 2026-11-29 12:00:00 UTC``.
        goodput: under the settings' contract, of ``contract_ttft_seconds`` and ``contract_tpot_seconds``.
        latency: distributions of requests.
        requests_by_front_end: finished requests by instance.
    """

    source: str
    groups: tuple[GroupEvidence, ...]
    goodput: Goodput | Unknown
    contract_ttft_seconds: float
    contract_tpot_seconds: float
    latency: Mapping[Metric, Distribution]
    requests_by_front_end: Mapping[str, int] | Unknown
