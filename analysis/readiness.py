"""Is a deployment ready, by a protocol? Limits and evidence in, checks out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from moescope.analysis.failover_impact import FailoverStrategy
from moescope.analysis.readiness_balance import judge_balance
from moescope.analysis.readiness_capacity import judge_goodput, judge_memory
from moescope.analysis.readiness_check import Check, CheckStatus, Section
from moescope.analysis.readiness_evidence import GroupEvidence, ReadinessEvidence
from moescope.analysis.readiness_failure import judge_worker_down
from moescope.analysis.readiness_front_end import judge_router_down
from moescope.analysis.readiness_metrics import judge_metrics
from moescope.analysis.readiness_placement import judge_placement
from moescope.analysis.readiness_protocol import ReadinessProtocol
from moescope.analysis.readiness_worker_slow import judge_worker_slow
from moescope.schemas.settings import Settings


@dataclass(frozen=True, slots=True)
class Readiness:
    """The answer to a protocol.

    Attributes:
        protocol: what was asked.
        source: whose numbers these are, and of when.
        checks: in the order of the protocol.
        is_strict: what could not be checked counts as failed.
    """

    protocol: ReadinessProtocol
    source: str
    checks: tuple[Check, ...]
    is_strict: bool = False

    def count(self, status: CheckStatus) -> int:
        """How many checks ended so."""
        return sum(check.status is status for check in self.checks)

    @property
    def is_ready(self) -> bool:
        """Nothing failed and something passed; under ``is_strict`` everything did."""
        failed, unknown = self.count(CheckStatus.FAILED), self.count(CheckStatus.NOT_CHECKED)
        return not failed and not (self.is_strict and unknown) and self.count(CheckStatus.PASSED) > 0

    def of_section(self, section: Section) -> tuple[Check, ...]:
        """Its checks."""
        return tuple(check for check in self.checks if check.section is section)


def judge_readiness(
    protocol: ReadinessProtocol, evidence: ReadinessEvidence, settings: Settings, *, is_strict: bool = False
) -> Readiness:
    """Judge every section that the protocol has."""
    checks = [
        check
        for group in evidence.groups
        for check in _judge_group(protocol, group, _scope(evidence, group), settings)
    ]
    if protocol.partial_failure is not None and protocol.partial_failure.router_down is not None:
        checks += judge_router_down(protocol.partial_failure.router_down, evidence)
    if protocol.goodput is not None:
        checks.append(judge_goodput(protocol.goodput, evidence))
    order = list(Section)
    checks.sort(key=lambda check: order.index(check.section))
    return Readiness(protocol, evidence.source, tuple(checks), is_strict)


def _scope(evidence: ReadinessEvidence, group: GroupEvidence) -> str:
    """A group is named where there are several."""
    return f"EP group {group.ep_group}" if len(evidence.groups) > 1 else ""


def _judge_group(
    protocol: ReadinessProtocol, group: GroupEvidence, scope: str, settings: Settings
) -> Iterator[Check]:
    placement, partial = protocol.expert_placement, protocol.partial_failure
    down = None if partial is None else partial.worker_down
    strategy = FailoverStrategy.REASSIGN if placement is None else placement.failover_strategy
    if placement is not None:
        yield from judge_placement(placement, group, scope, has_worker_down=down is not None)
    if protocol.load_balance_check is not None:
        yield from judge_balance(protocol.load_balance_check, group, scope, settings)
    if down is not None:
        yield from judge_worker_down(down, strategy, group, scope)
    if partial is not None and partial.worker_slow is not None:
        yield from judge_worker_slow(partial.worker_slow, group, scope)
    if protocol.expert_metrics is not None:
        yield from judge_metrics(protocol.expert_metrics, group, scope)
    if protocol.memory is not None:
        yield from judge_memory(protocol.memory, group, scope)
