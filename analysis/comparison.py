"""Two windows side by side, A and B: every number with its difference, and whether it is beyond noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.comparison_load import LoadComparison, compare_loads
from moescope.analysis.comparison_series import Change, SeriesTest, choose_limit, compare_series
from moescope.analysis.dispatch import pick_dispatch_times
from moescope.analysis.distribution import Distribution
from moescope.analysis.expert_load import TimeArray
from moescope.analysis.latency_report import LatencyAnswer
from moescope.analysis.memory import GROWING_POOLS, PoolHistory
from moescope.analysis.prefix_cache import PrefixCache
from moescope.analysis.requests import rate_goodput
from moescope.analysis.span import Span
from moescope.analysis.steps import pick_steps
from moescope.analysis.token_rate import TokenRate
from moescope.schemas import metrics
from moescope.schemas.attributes import MemoryPool, Phase
from moescope.schemas.metrics import Metric
from moescope.schemas.records import FloatArray
from moescope.schemas.settings import Settings

REQUEST_NAMES: Final[Mapping[Metric, str]] = {
    metrics.TIME_TO_FIRST_TOKEN: "TTFT",
    metrics.TIME_PER_OUTPUT_TOKEN: "TPOT",
    metrics.INTER_TOKEN_LATENCY: "ITL",
    metrics.REQUEST_QUEUE_DURATION: "Queue",
    metrics.REQUEST_DURATION: "End to end",
}
_POOL_NAMES: Final = {MemoryPool.KDA_STATE: "KDA state", MemoryPool.MLA_KV_CACHE: "MLA KV cache"}
_PERCENTILES: Final = ("p50", "p99")


class Subject(StrEnum):
    """What a number is about; numbers of one subject stand together."""

    LATENCY = "latency"
    GOODPUT = "goodput"
    ENGINE = "inside the engine"
    TOKENS = "tokens"
    MEMORY = "memory"


class Unit(StrEnum):
    """How a number is read."""

    SECONDS = "s"
    SHARE = "share"
    RATE = "a second"


@dataclass(frozen=True, slots=True)
class Series:
    """One number of one window.

    Attributes:
        whole: over the whole window; NaN where unknown.
        times: datetime64[ms] ``[steps]``, UTC.
        steps: float64 ``[steps]``, NaN where unknown.
    """

    whole: float
    times: TimeArray
    steps: FloatArray


@dataclass(frozen=True, slots=True)
class Quantity:
    """Which number it is. ``is_better`` says which way is better: 1 higher, -1 lower, 0 neither."""

    name: str
    subject: Subject
    unit: Unit
    metric: Metric
    is_better: int


@dataclass(frozen=True, slots=True)
class NumberChange:
    """One number of both windows.

    Attributes:
        a, b: as they were; None where nothing of it is stored.
        test: of the steps of both.
        change: what became of it from B to A.
    """

    quantity: Quantity
    a: Series | None
    b: Series | None
    test: SeriesTest
    change: Change

    @property
    def is_worse(self) -> bool:
        """Beyond noise, the wrong way."""
        return self._direction * self.quantity.is_better < 0

    @property
    def is_better(self) -> bool:
        """Beyond noise, the right way."""
        return self._direction * self.quantity.is_better > 0

    @property
    def times(self) -> float:
        """A over B; NaN where it has no meaning."""
        if self.a is None or self.b is None or not self.b.whole > 0:
            return float("nan")
        return self.a.whole / self.b.whole

    @property
    def _direction(self) -> int:
        return {Change.HIGHER: 1, Change.LOWER: -1}.get(self.change, 0)


@dataclass(frozen=True, slots=True)
class ComparisonSide:
    """Everything that is read of one window.

    Attributes:
        span: of the EP group.
        rates: tokens a second, of the same group.
        assessment: of the phase that is compared; None where nothing of it is stored.
    """

    span: Span
    latency: LatencyAnswer
    rates: tuple[TokenRate, ...]
    pools: PoolHistory
    prefix_cache: PrefixCache
    assessment: LoadAssessment | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two windows. ``load`` is None where their experts cannot be compared."""

    a: ComparisonSide
    b: ComparisonSide
    numbers: tuple[NumberChange, ...]
    load: LoadComparison | None


def compare(a: ComparisonSide, b: ComparisonSide, settings: Settings) -> Comparison:
    """Compare two windows: their numbers, and the load of one phase."""
    load = None
    if a.assessment is not None and b.assessment is not None:
        load = compare_loads(a.assessment, b.assessment, settings)
    return Comparison(a, b, compare_numbers(list_series(a), list_series(b)), load)


def compare_numbers(
    of_a: Mapping[Quantity, Series], of_b: Mapping[Quantity, Series]
) -> tuple[NumberChange, ...]:
    """Compare every number that either window has; those that both have are judged together."""
    wanted = [*of_a, *(one for one in of_b if one not in of_a)]
    wanted.sort(key=lambda one: list(Subject).index(one.subject))
    tests = {
        one: compare_series(of_a[one].steps, of_b[one].steps)
        if one in of_a and one in of_b
        else SeriesTest(float("nan"), float("nan"), is_higher=False)
        for one in wanted
    }
    limit = choose_limit([test.p_value for test in tests.values()])
    return tuple(
        NumberChange(one, of_a.get(one), of_b.get(one), test, test.judge(limit))
        for one, test in tests.items()
    )


def list_series(side: ComparisonSide) -> dict[Quantity, Series]:
    """Every number of one window that is stored."""
    found = {
        **dict(_request_series(side.latency)),
        **dict(_goodput_series(side.latency)),
        **dict(_engine_series(side.latency)),
        **dict(_token_series(side.rates)),
        **dict(_memory_series(side.pools, side.prefix_cache)),
    }
    return {quantity: series for quantity, series in found.items() if np.isfinite(series.steps).any()}


def _request_series(answer: LatencyAnswer) -> Iterator[tuple[Quantity, Series]]:
    for metric, distribution in answer.requests.items():
        yield from _percentiles(REQUEST_NAMES[metric], Subject.LATENCY, distribution, _PERCENTILES)


def _engine_series(answer: LatencyAnswer) -> Iterator[tuple[Quantity, Series]]:
    for phase, steps in pick_steps(answer.distributions, metrics.STEP_DURATION).items():
        yield from _percentiles(f"Forward pass, {phase.value}", Subject.ENGINE, steps, ("p50",))
    for (stage, phase), calls in pick_dispatch_times(answer.distributions).items():
        yield from _percentiles(
            f"{stage.value.capitalize()}, {phase.value}", Subject.ENGINE, calls, _PERCENTILES
        )


def _percentiles(
    name: str, subject: Subject, distribution: Distribution, percentiles: Sequence[str]
) -> Iterator[tuple[Quantity, Series]]:
    for percentile in percentiles:
        yield (
            Quantity(f"{name} {percentile}", subject, Unit.SECONDS, distribution.metric, -1),
            Series(
                float(getattr(distribution.whole, percentile)),
                distribution.times,
                getattr(distribution, percentile),
            ),
        )


def _goodput_series(answer: LatencyAnswer) -> Iterator[tuple[Quantity, Series]]:
    good = answer.goodput
    if good.good_share is not None:
        yield (
            Quantity("Good requests", Subject.GOODPUT, Unit.SHARE, metrics.REQUESTS_FINISHED, 1),
            Series(good.good_share, good.steps.times, good.good_share_over_time),
        )
        rates = rate_goodput(good.steps, answer.span)
        yield (
            Quantity("Good tokens", Subject.GOODPUT, Unit.RATE, metrics.REQUEST_OUTPUT_TOKENS, 1),
            Series(good.good_tokens_per_second, good.steps.times, rates.good_tokens),
        )


def _token_series(rates: Sequence[TokenRate]) -> Iterator[tuple[Quantity, Series]]:
    by_phase = {rate.phase: rate for rate in rates}
    for phase in Phase:
        if phase in by_phase:
            rate = by_phase[phase]
            yield (
                Quantity(f"Tokens, {phase.value}", Subject.TOKENS, Unit.RATE, metrics.TOKENS, 0),
                Series(rate.mean_per_second, rate.times, rate.per_second),
            )


def _memory_series(pools: PoolHistory, cache: PrefixCache) -> Iterator[tuple[Quantity, Series]]:
    for pool, ratio in pools.fullest_ratio.items():
        if pool in GROWING_POOLS and np.isfinite(ratio).any():
            name = f"Fullest {_POOL_NAMES.get(pool, pool.value)}"
            yield (
                Quantity(name, Subject.MEMORY, Unit.SHARE, metrics.MEMORY_USAGE, -1),
                Series(float(np.nanmax(ratio)), pools.times[pool], ratio),
            )
    if cache.ratio is not None:
        yield (
            Quantity("Prefix cache hits", Subject.MEMORY, Unit.SHARE, metrics.PREFIX_CACHE_TOKENS, 1),
            Series(cache.ratio, cache.times, cache.ratio_over_time),
        )
