"""What is known of the ranks of one EP group when stragglers are looked for, and the rules of the search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from moescope.schemas.attributes import DispatchStage, Phase
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerRules:
    """From when on something is named.

    Attributes:
        wait_ratio: the others wait this many times as long for it as for the median rank over such a link.
            DeepXTrace calls a column of its wait matrix abnormal from 3 × its mean on.
        link_ratio: the same of one pair, beyond what its two ranks do to their other peers (DeepXTrace: 5).
        time_ratio: its own time is this multiple of what the median rank needs for the same load.
        cost_share: and every other rank loses this share of its time to it. Not asked for where waits are
            clock cycles, which are no time.
        windows: and it was so in so many of the newest 2 × windows − 1, one of the newest two among them.
    """

    wait_ratio: float = 3.0
    link_ratio: float = 5.0
    time_ratio: float = 1.25
    cost_share: float = 0.05
    windows: int = 3

    @property
    def recent_windows(self) -> int:
        """How many of the newest windows are judged."""
        return 2 * self.windows - 1

    @classmethod
    def of(cls, settings: Settings) -> StragglerRules:
        """The rules that the settings make."""
        return cls(
            wait_ratio=settings.straggler_ratio,
            link_ratio=settings.straggler_link_ratio,
            time_ratio=settings.straggler_time_ratio,
            cost_share=settings.straggler_cost_share,
            windows=settings.straggler_windows,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTimes:
    """What the ranks did in one phase. NaN where a rank says nothing.

    Attributes:
        passes: float64 ``[windows, ranks]``: forward passes.
        pass_seconds: float64 ``[windows, ranks]``: mean duration of one, waiting included.
        pass_tokens: float64 ``[windows, ranks]``: mean tokens that one computes.
        call_seconds: by stage, float64 ``[windows, ranks]``: mean duration of one dispatch or combine of one
            layer, waiting included.
        expert_seconds: float64 ``[windows, layers, ranks]``: grouped expert kernels of one pass.
        loads: float64 ``[layers, ranks]``: assignments that each rank computed in the newest windows.
    """

    passes: FloatArray
    pass_seconds: FloatArray
    pass_tokens: FloatArray
    call_seconds: Mapping[DispatchStage, FloatArray] = field(default_factory=dict)
    expert_seconds: FloatArray | None = None
    loads: FloatArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerEvidence:
    """One EP group over some windows of equal length, the oldest first.

    Attributes:
        ranks: int64 ``[ranks]``, EP ranks, increasing.
        starts_ms: int64 ``[windows]``, Unix milliseconds.
        window_seconds: length of a window.
        covered_seconds: float64 ``[windows]``: how much of each the data covers; all of it if None.
        waits: by stage, float64 ``[windows, ranks, ranks]``: what row waited for column, seconds (or cycles);
            NaN in the rows of ranks that reported nothing.
        waits_are_time: False where waits are clock cycles summed over warps: only ratios mean something then.
        hosts: of each rank, empty where it is not known.
        times: by phase.
    """

    ranks: IntArray
    starts_ms: IntArray
    window_seconds: float
    covered_seconds: FloatArray | None = None
    waits: Mapping[DispatchStage, FloatArray] = field(default_factory=dict)
    waits_are_time: bool = True
    hosts: tuple[str, ...] = ()
    times: Mapping[Phase, RankTimes] = field(default_factory=dict)

    @property
    def num_ranks(self) -> int:
        """Ranks that reported anything or were waited for."""
        return len(self.ranks)

    @property
    def num_windows(self) -> int:
        """Windows that are looked at."""
        return len(self.starts_ms)

    @property
    def seconds(self) -> FloatArray:
        """What the data covers of each window: float64 ``[windows]``."""
        whole: FloatArray = np.full(self.num_windows, self.window_seconds)
        return whole if self.covered_seconds is None else self.covered_seconds

    def load_of_median(self, phase: Phase) -> FloatArray:
        """Each rank's assignments over the median rank's: float64 ``[ranks]``, NaN where unknown."""
        loads = self.times[phase].loads if phase in self.times else None
        unknown: FloatArray = np.full(self.num_ranks, np.nan)
        return unknown if loads is None else of_median(loads.sum(axis=0))


def of_median(values: FloatArray) -> FloatArray:
    """Each value over the median one of those that are known: NaN where it or the median is unknown or 0."""
    known = values[np.isfinite(values)]
    middle = float(np.median(known)) if len(known) else 0.0
    ratio: FloatArray = values / middle if middle > 0 else np.full(values.shape, np.nan)
    return ratio
