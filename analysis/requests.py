"""What users feel: latency of requests, what is queued, and how much of it keeps the latency contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis.distribution import Distribution, DistributionKey
from moescope.analysis.expert_load import TimeArray
from moescope.analysis.frozen import lock, locked_int64
from moescope.analysis.span import Span
from moescope.analysis.store import Store, column_as_array
from moescope.schemas import metrics
from moescope.schemas.metrics import Metric
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.settings import Settings

REQUEST_METRICS: Final = (
    metrics.TIME_TO_FIRST_TOKEN,
    metrics.TIME_PER_OUTPUT_TOKEN,
    metrics.INTER_TOKEN_LATENCY,
    metrics.REQUEST_QUEUE_DURATION,
    metrics.REQUEST_DURATION,
)
"""In the order in which they are read: the first token, the rest, what they were waiting for, the whole."""

COST_FORMULA: Final = "price × rank-hours / good tokens × 1000"
_SECONDS_PER_HOUR: Final = 3600


@dataclass(frozen=True, slots=True)
class RequestLoad:
    """Requests in the engine over time. Arrays are ``[steps]``.

    Attributes:
        times: datetime64[ms], UTC, starts of the steps.
        running, waiting: float64, mean number over the step.
    """

    times: TimeArray
    running: FloatArray
    waiting: FloatArray


@dataclass(frozen=True, slots=True)
class GoodputSteps:
    """Finished requests over time. Arrays are ``[steps]``.

    Attributes:
        times: datetime64[ms], UTC.
        requests, good_requests, output_tokens, good_tokens: int64.
        ranks: int64, size of the EP groups that reported, over all of them.
        rank_seconds: float64, time that the ranks ran, over all of them; idle ranks run as well.
    """

    times: TimeArray
    requests: IntArray
    good_requests: IntArray
    output_tokens: IntArray
    good_tokens: IntArray
    ranks: IntArray
    rank_seconds: FloatArray


@dataclass(frozen=True, slots=True)
class GoodputRates:
    """Finished requests and their output tokens, a second. Arrays are float64 ``[steps]``."""

    requests: FloatArray
    good_requests: FloatArray
    output_tokens: FloatArray
    good_tokens: FloatArray


@dataclass(frozen=True, slots=True)
class Goodput:
    """How much of the work kept the latency contract.

    Attributes:
        steps: over time.
        requests, good_requests, output_tokens, good_tokens: over the whole span.
        good_share: good requests of all that finished; None when none did.
        good_token_share: good output tokens of all; None when there were none.
        good_share_over_time: float64 ``[steps]``, NaN where none finished.
        good_tokens_per_second: over the time that is covered.
        ranks: most ranks that reported at once.
        cost_per_thousand: cost of a thousand good tokens; None without a price, ranks or good tokens.
        misses_contract: more than the settings' share of requests missed the contract.
    """

    steps: GoodputSteps
    requests: int
    good_requests: int
    output_tokens: int
    good_tokens: int
    good_share: float | None
    good_token_share: float | None
    good_share_over_time: FloatArray
    good_tokens_per_second: float
    ranks: int
    cost_per_thousand: float | None
    misses_contract: bool


def pick_request_latency(
    distributions: Mapping[DistributionKey, Distribution],
) -> Mapping[Metric, Distribution]:
    """The latencies of requests that are stored, by metric, in reading order."""
    keys = {metric: DistributionKey(metric.name) for metric in REQUEST_METRICS}
    return {metric: distributions[key] for metric, key in keys.items() if key in distributions}


def read_request_load(store: Store, span: Span) -> RequestLoad:
    """Read how many requests are running and waiting.

    Raises:
        StoreError: the store cannot answer.
    """
    table = store.query("request_load", step_seconds=span.step_seconds, **span.params())
    times = lock(column_as_array(table, "time_ms").astype("datetime64[ms]"))
    running, waiting = (lock(column_as_array(table, name).copy()) for name in ("running", "waiting"))
    return RequestLoad(times, running, waiting)


def read_goodput(store: Store, span: Span, settings: Settings) -> Goodput:
    """Read and judge how many requests kept the latency contract.

    Raises:
        StoreError: the store cannot answer.
    """
    table = store.query("goodput", step_seconds=span.step_seconds, **span.params())
    counts = ("requests", "good_requests", "output_tokens", "good_tokens", "ranks")
    times = lock(column_as_array(table, "time_ms").astype("datetime64[ms]"))
    columns = (locked_int64(column_as_array(table, name)) for name in counts)
    requests, good_requests, output_tokens, good_tokens, ranks = columns
    rank_seconds = lock(column_as_array(table, "rank_seconds").astype(np.float64))
    steps = GoodputSteps(times, requests, good_requests, output_tokens, good_tokens, ranks, rank_seconds)
    return judge_goodput(steps, span.seconds, settings)


def rate_goodput(steps: GoodputSteps, span: Span) -> GoodputRates:
    """Finished requests a second in each step, over the part of it that the data covers."""
    seconds = span.seconds_of_steps(steps.times)
    counts = (steps.requests, steps.good_requests, steps.output_tokens, steps.good_tokens)
    return GoodputRates(*(lock(count / seconds) for count in counts))


def judge_goodput(steps: GoodputSteps, seconds: float, settings: Settings) -> Goodput:
    """Judge finished requests of a span that covers ``seconds``."""
    requests, good = int(steps.requests.sum()), int(steps.good_requests.sum())
    tokens, good_tokens = int(steps.output_tokens.sum()), int(steps.good_tokens.sum())
    share = np.full(len(steps.times), np.nan)
    np.divide(steps.good_requests, steps.requests, out=share, where=steps.requests > 0)
    ranks = int(steps.ranks.max(initial=0))
    return Goodput(
        *(steps, requests, good, tokens, good_tokens),
        good / requests if requests else None,
        good_tokens / tokens if tokens else None,
        lock(share),
        good_tokens / seconds if seconds > 0 else 0.0,
        ranks,
        cost_per_thousand_tokens(
            good_tokens,
            rank_seconds=float(steps.rank_seconds.sum()),
            rank_hour_price=settings.rank_hour_price,
        ),
        requests > 0 and (requests - good) / requests > settings.contract_missed_share,
    )


def cost_per_thousand_tokens(
    good_tokens: int, *, rank_seconds: float, rank_hour_price: float
) -> float | None:
    """What a thousand good tokens cost: price of a rank-hour × rank-hours / good tokens × 1000.

    Returns:
        in the currency of the price; None without a price, without ranks, or without good tokens.
    """
    if not (rank_hour_price > 0 and rank_seconds > 0 and good_tokens > 0):
        return None
    return rank_hour_price * rank_seconds / _SECONDS_PER_HOUR / good_tokens * 1000
