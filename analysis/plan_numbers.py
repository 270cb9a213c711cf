"""A plan in a handful of numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moescope.analysis.backtest import Backtest
from moescope.analysis.plan_result import PlanResult


@dataclass(frozen=True, slots=True, eq=False)
class PlanNumbers:
    """What stands at the head of a plan.

    Attributes:
        ratio_before, ratio_after, bound: max / mean, averaged over the layers with load.
        moved: copies that ranks must receive; ``moved_share`` of all copies that the plan has.
        moved_bytes: None where the size of an expert is not known.
        memory_before, memory_after: bytes of the experts on the fullest rank; None likewise.
        covered_before, covered_after: part of the traffic whose experts are on two ranks or more.
        backtest: None where there were too few windows for any.
    """

    ratio_before: float
    ratio_after: float
    bound: float
    moved: int
    moved_share: float
    moved_bytes: float | None
    memory_before: float | None
    memory_after: float | None
    covered_before: float
    covered_after: float
    backtest: Backtest | None

    @property
    def has_range(self) -> bool:
        """Whether the gain of one next window has a range."""
        return self.backtest is not None and bool(np.isfinite(self.backtest.gain_low))


def number_plan(plan: PlanResult) -> PlanNumbers:
    """Read a plan's numbers off it."""
    effect, tested = plan.effect, plan.backtest
    before, after = plan.memory_per_rank(plan.before), plan.memory_per_rank(plan.placement)
    return PlanNumbers(
        effect.mean(plan.ratio_before),
        effect.mean(plan.ratio_after),
        effect.mean(plan.bound),
        effect.moved,
        plan.moved_share,
        effect.moved_bytes,
        None if before is None else float(before.max()),
        None if after is None else float(after.max()),
        plan.coverage_before.traffic_on_two_ranks,
        plan.coverage.traffic_on_two_ranks,
        tested if tested is not None and len(tested.ratio_before) else None,
    )
