"""What happens when a rank is slow: read, predicted, and said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from moescope.analysis import words
from moescope.analysis.distribution import read_distributions
from moescope.analysis.failover_facts import FailoverFacts
from moescope.analysis.partial_failure import (
    MODEL_WORDS,
    SlowPass,
    SlowRequests,
    slow_down,
    slow_requests,
)
from moescope.analysis.partial_failure_times import read_pass_times
from moescope.analysis.requests import pick_request_latency
from moescope.analysis.span_sections import json_number
from moescope.analysis.store import Store
from moescope.schemas import metrics
from moescope.schemas.attributes import Phase
from moescope.schemas.records import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class SlowAnswer:
    """One slow rank of an EP group.

    Attributes:
        rank: EP rank; ``times_slower`` its factor.
        ranks: int64, EP ranks of the rank axis.
        own_share: part of the tokens that the rank's own requests bring.
        passes: by phase, those whose times are known.
        step_seconds: by phase, the mean pass now.
        requests: what they feel.
        ttft_seconds, tpot_seconds: means now; NaN where they are not known.
        weights: float64 ``[ranks]``, part of the tokens that each rank's requests bring.
    """

    rank: int
    times_slower: float
    ranks: IntArray
    own_share: float
    passes: Mapping[Phase, SlowPass]
    step_seconds: Mapping[Phase, float]
    requests: SlowRequests
    ttft_seconds: float
    tpot_seconds: float
    weights: FloatArray

    @property
    def row(self) -> int:
        """Its row of the rank axis."""
        return int(np.flatnonzero(self.ranks == self.rank)[0])

    def own(self, ratio: FloatArray) -> float:
        """A ratio for requests of the slow rank itself."""
        return float(ratio[self.row])

    def others(self, ratio: FloatArray) -> float:
        """The same for those of all other ranks, by the tokens that they bring; NaN without other ranks."""
        apart = np.arange(len(ratio)) != self.row
        weights = self.weights[apart]
        if not apart.any():
            return float("nan")
        return float(np.average(ratio[apart], weights=weights if weights.any() else None))

    def lines(self) -> Iterator[str]:
        """Paragraphs, not wrapped."""
        yield f"What happens when rank {self.rank} is {self.times_slower:g} times slower?"
        if not self.passes:
            yield "No rank reports how long its forward passes take, so nothing can be said."
            return
        for phase, slow in self.passes.items():
            yield self._pass_line(phase, slow)
        yield self._request_line()
        yield f"Model: {MODEL_WORDS}."

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        return {
            "rank": self.rank,
            "times_slower": self.times_slower,
            "own_share": self.own_share,
            "model": MODEL_WORDS,
            "passes": [self._pass_dict(phase, slow) for phase, slow in self.passes.items()],
            "ttft_seconds": json_number(self.ttft_seconds),
            "ttft_ratio": self._ratios(self.requests.ttft_ratio),
            "tpot_seconds": json_number(self.tpot_seconds),
            "tpot_ratio": self._ratios(self.requests.tpot_ratio),
        }

    def _pass_line(self, phase: Phase, slow: SlowPass) -> str:
        now, lock_step = words.seconds(self.step_seconds[phase]), f"in lock step × {slow.lock_step_ratio:.2f}"
        at_once = self.others(slow.at_once)
        if not np.isclose(at_once, self.others(slow.ratio), rtol=0.01):
            lock_step = f"before batches grow × {at_once:.2f}, {lock_step}"
        return (
            f"{phase.value}: a pass of {now} takes × {self.own(slow.ratio):.2f} on rank {self.rank} and × "
            f"{self.others(slow.ratio):.2f} on the others ({lock_step}). "
            f"{words.percent(slow.touching_share)} of the tokens need the rank in a layer, "
            f"{words.percent(slow.touching_any_share)} in some layer of a pass; a pass of another rank waits "
            f"for it in {words.percent(self.others(slow.needing_share))} of its layers."
        )

    def _request_line(self) -> str:
        parts = []
        for name, now, ratio in (
            ("TTFT", self.ttft_seconds, self.requests.ttft_ratio),
            ("TPOT", self.tpot_seconds, self.requests.tpot_ratio),
        ):
            if not np.isnan(ratio).all():
                shown = "" if np.isnan(now) else f" ({words.seconds(now)} now)"
                parts.append(f"{name}{shown} {_times(self.own(ratio))} and {_times(self.others(ratio))}")
        if not parts:
            return "What requests feel is not known: no TTFT or TPOT is reported."
        return (
            f"requests that run on rank {self.rank} ({words.percent(self.own_share)} of the work) and all "
            f"others: {'; '.join(parts)}. Rare long prompts make queues, and so TTFT, longer than this."
        )

    def _pass_dict(self, phase: Phase, slow: SlowPass) -> dict[str, Any]:
        return {
            "phase": phase.value,
            "step_seconds": self.step_seconds[phase],
            "step_ratio": self._ratios(slow.ratio),
            "step_ratio_at_once": self._ratios(slow.at_once),
            "lock_step_ratio": slow.lock_step_ratio,
            "touching_share": slow.touching_share,
            "touching_any_share": slow.touching_any_share,
            "needing_share": json_number(self.others(slow.needing_share)),
        }

    def _ratios(self, ratio: FloatArray) -> dict[str, float | None]:
        return {"own": _finite(self.own(ratio)), "others": _finite(self.others(ratio))}


def read_slow_answer(store: Store, facts: FailoverFacts, row: int, times_slower: float) -> SlowAnswer:
    """Predict what happens when the rank of a row is so many times slower.

    Raises:
        StoreError: the store cannot answer.
    """
    times = read_pass_times(store, facts)
    passes = {phase: slow_down(one, row, times_slower) for phase, one in times.items()}
    wanted = (metrics.TIME_TO_FIRST_TOKEN, metrics.TIME_PER_OUTPUT_TOKEN, metrics.REQUEST_QUEUE_DURATION)
    latency = pick_request_latency(read_distributions(store, facts.span, wanted))
    ttft, tpot, queue = (latency[one].whole.mean if one in latency else np.nan for one in wanted)
    pairs = {phase: (times[phase], slow) for phase, slow in passes.items()}
    return SlowAnswer(
        int(facts.ranks[row]),
        times_slower,
        facts.ranks,
        float(facts.own_share[row]),
        passes,
        {phase: float(np.average(one.step_seconds)) for phase, one in times.items()},
        slow_requests(
            pairs.get(Phase.PREFILL), pairs.get(Phase.DECODE), ttft_seconds=ttft, queue_seconds=queue
        ),
        *(ttft, tpot, facts.own_share),
    )


def _times(ratio: float) -> str:
    return "without end (more prompts come than it can compute)" if np.isinf(ratio) else f"× {ratio:.2f}"


def _finite(ratio: float) -> float | None:
    return float(ratio) if np.isfinite(ratio) else None
