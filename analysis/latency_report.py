"""Latency of requests and of what they are made of, printed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from moescope.analysis import words
from moescope.analysis.dispatch import DISPATCH_METRICS
from moescope.analysis.distribution import Distribution, DistributionKey, Percentiles, read_distributions
from moescope.analysis.report_sections import DEFAULT_WIDTH
from moescope.analysis.requests import (
    COST_FORMULA,
    REQUEST_METRICS,
    Goodput,
    RequestLoad,
    pick_request_latency,
    read_goodput,
    read_request_load,
)
from moescope.analysis.span import Span
from moescope.analysis.span_sections import UNKNOWN, describe_span, json_number, print_spans
from moescope.analysis.steps import STEP_METRICS
from moescope.analysis.store import Store
from moescope.analysis.text_table import Column, render_table
from moescope.schemas import metrics
from moescope.schemas.metrics import Metric
from moescope.schemas.settings import Settings

LATENCY_METRICS: Final = (*REQUEST_METRICS, *DISPATCH_METRICS, *STEP_METRICS)
_COLUMNS: Final = (
    *(Column("metric", left=True), Column("stage", left=True), Column("phase", left=True), Column("count")),
    *(Column("mean"), Column("p50"), Column("p90"), Column("p99")),
)


@dataclass(frozen=True, slots=True)
class LatencyAnswer:
    """What one deployment's requests waited for in a span.

    Attributes:
        distributions: those that are stored, requests first.
    """

    span: Span
    distributions: Mapping[DistributionKey, Distribution]
    load: RequestLoad
    goodput: Goodput

    @property
    def requests(self) -> Mapping[Metric, Distribution]:
        """The latencies of requests that are stored."""
        return pick_request_latency(self.distributions)

    @property
    def has_inside(self) -> bool:
        """Whether a step, a dispatch or a combine was timed."""
        return len(self.distributions) > len(self.requests)

    def lines(self, width: int) -> Iterator[str]:
        """See :class:`~moescope.analysis.span_sections.SpanAnswer`."""
        yield textwrap.fill(self._describe_goodput(), width)
        if not self.distributions:
            yield "No latency is stored: no engine reported a finished request, a step or a dispatch."
            return
        rows = [_row(key, self.distributions[key]) for key in sorted(self.distributions, key=_reading_order)]
        yield render_table(_COLUMNS, rows, width)

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape of one deployment."""
        return describe_span(self.span) | {
            "goodput": _goodput_dict(self.goodput),
            "running": json_number(float(self.load.running[-1])) if len(self.load.running) else None,
            "waiting": json_number(float(self.load.waiting[-1])) if len(self.load.waiting) else None,
            "distributions": [
                _distribution_dict(key, self.distributions[key])
                for key in sorted(self.distributions, key=_reading_order)
            ],
        }

    def _describe_goodput(self) -> str:
        good = self.goodput
        if good.good_share is None:
            return "No request finished."
        share = f"{words.percent(good.good_share)} of {words.count(good.requests, 'request')}"
        text = f"{share} kept the latency contract"
        if good.good_token_share is not None:
            text += f", with {words.percent(good.good_token_share)} of the output tokens"
        text += f": {words.compact(good.good_tokens_per_second)} good tokens a second."
        if good.cost_per_thousand is not None:
            text += f" A thousand of them cost {good.cost_per_thousand:.4g} ({COST_FORMULA})."
        return text


@dataclass(frozen=True, slots=True)
class LatencyReport:
    """Latency and goodput of every deployment."""

    answers: tuple[LatencyAnswer, ...]
    service: str | None
    settings: Settings

    @property
    def has_problem(self) -> bool:
        """Whether more requests than the settings allow missed the latency contract."""
        return any(answer.goodput.misses_contract for answer in self.answers)

    def to_text(self, width: int = DEFAULT_WIDTH) -> str:
        """Tables for a terminal of that width."""
        return print_spans(self.answers, self.service, width)

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape: ``contract``, and ``deployments[] → goodput, distributions[]``.

        Numbers are in the unit that stands beside them; null where nothing is known.
        """
        return {
            "contract": {
                "ttft_seconds": self.settings.contract_ttft_seconds,
                "tpot_seconds": self.settings.contract_tpot_seconds,
                "missed_share": self.settings.contract_missed_share,
            },
            "deployments": [answer.to_dict() for answer in self.answers],
        }


def read_latency_answer(store: Store, span: Span, settings: Settings) -> LatencyAnswer:
    """Read everything that the report and the page say about latency.

    Raises:
        StoreError: the store cannot answer.
    """
    return LatencyAnswer(
        span,
        read_distributions(store, span, LATENCY_METRICS),
        read_request_load(store, span),
        read_goodput(store, span, settings),
    )


def amount(metric: Metric, value: float) -> str:
    """A value in words: ``23.4 ms``, ``1.20 s``, or a plain number where the unit is no time."""
    if value != value:  # noqa: PLR0124 - NaN, which is what nothing observed gives
        return UNKNOWN
    if metric.unit != "s":
        return words.compact(value)
    return words.seconds(value)


def _reading_order(key: DistributionKey) -> tuple[int, str, str]:
    order = [metric.name for metric in LATENCY_METRICS]
    return (order.index(key.metric), key.phase, key.stage)


def _row(key: DistributionKey, distribution: Distribution) -> list[str]:
    whole, metric = distribution.whole, distribution.metric
    return [
        *(key.metric, key.stage, key.phase, words.integer(whole.observations)),
        amount(metric, whole.mean),
        *(_percentile(metric, value, whole) for value in (whole.p50, whole.p90, whole.p99)),
    ]


def _percentile(metric: Metric, value: float, whole: Percentiles) -> str:
    return f"> {amount(metric, value)}" if whole.is_beyond(value) else amount(metric, value)


def _distribution_dict(key: DistributionKey, distribution: Distribution) -> dict[str, Any]:
    whole: Percentiles = distribution.whole
    return {
        "metric": key.metric,
        "unit": metrics.get_metric(key.metric).unit,
        "stage": key.stage or None,
        "phase": key.phase or None,
        "observations": whole.observations,
        "mean": json_number(whole.mean),
        "p50": json_number(whole.p50),
        "p90": json_number(whole.p90),
        "p99": json_number(whole.p99),
        "p99_is_capped": whole.is_capped,
    }


def _goodput_dict(good: Goodput) -> dict[str, Any]:
    return {
        "requests": good.requests,
        "good_requests": good.good_requests,
        "good_share": good.good_share,
        "output_tokens": good.output_tokens,
        "good_tokens": good.good_tokens,
        "good_token_share": good.good_token_share,
        "good_tokens_per_second": good.good_tokens_per_second,
        "ranks": good.ranks,
        "cost_per_thousand_good_tokens": good.cost_per_thousand,
        "misses_contract": good.misses_contract,
    }
