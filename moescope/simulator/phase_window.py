"""One phase of one window of an EP group: its passes, what its tokens chose, and who sent what to whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from moescope.schemas.attributes import DispatchStage, Phase
from moescope.schemas.records import FloatArray, IntArray
from moescope.simulator.dispatch import duration_buckets
from moescope.simulator.rank_io import RankTraffic
from moescope.simulator.step_time import StepTime

_SPREAD: Final = (0.86, 0.92, 0.96, 0.99, 1.01, 1.04, 1.08, 1.14)
"""Equally likely multiples of a pass's mean time."""


@dataclass(slots=True)
class PhaseWindow:
    """Prefill or decode of one window.

    Attributes:
        phase: which.
        tokens: int64 ``[engines]``: token rows of each data-parallel engine.
        steps: int64 ``[ep_size]``: passes of each rank; ranks of one engine have the same.
        step: one pass.
        share: float64 ``[num_moe_layers, ep_size]``: assignments that a token brings to each rank.
        reach: the same shape: chance that it brings any.
        step_seconds: by engine: durations of the passes and how many took so long.
        counts: by rank that counts, int64 ``[num_moe_layers, num_experts]``.
        failovers: int64 ``[num_moe_layers, num_experts]``, by the rank that served.
        traffic: between the ranks.
        calls: dispatches and combines of each rank as distributions, see :func:`duration_buckets`.
    """

    phase: Phase
    tokens: IntArray
    steps: IntArray
    step: StepTime
    share: FloatArray
    reach: FloatArray
    step_seconds: list[list[tuple[float, int]]]
    counts: dict[int, IntArray] = field(default_factory=dict)
    failovers: dict[int, IntArray] = field(default_factory=dict)
    traffic: RankTraffic | None = None
    calls: dict[DispatchStage, tuple[IntArray, FloatArray]] = field(default_factory=dict)

    def group_ns(self, moe_layers: tuple[int, ...], num_layers: int) -> IntArray:
        """Time of each rank's grouped expert kernels: int64 ``[ep_size, num_layers]``, ns."""
        ranks = self.step.experts.shape[1]
        nanoseconds = np.zeros((ranks, num_layers), dtype=np.int64)
        of_a_pass = self.step.experts.T * 1e9
        nanoseconds[:, list(moe_layers)] = np.rint(of_a_pass * self.steps[:, None]).astype(np.int64)
        return nanoseconds

    def time_calls(self) -> None:
        """Fill in the dispatches and combines."""
        self.calls = {
            DispatchStage.DISPATCH: duration_buckets(self.step.dispatch_seconds(), self.steps),
            DispatchStage.COMBINE: duration_buckets(self.step.combine_seconds(), self.steps),
        }


def spread_steps(
    rng: np.random.Generator, seconds: FloatArray, steps: IntArray
) -> list[list[tuple[float, int]]]:
    """Passes of each engine, as a few durations and how many took so long.

    Args:
        rng: decides.
        seconds: float64 ``[engines]``: how long a pass lasts on average.
        steps: int64 ``[engines]``: passes.
    """
    counts = rng.multinomial(steps, np.full(len(_SPREAD), 1 / len(_SPREAD)))
    return [
        [(mean * times, count) for times, count in zip(_SPREAD, row, strict=True) if count]
        for mean, row in zip(seconds.tolist(), counts.tolist(), strict=True)
    ]
