"""What latency a readiness protocol has to expect while a worker is slow: of the one that hurts most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from moescope.analysis import words
from moescope.analysis.expert_load import LoadScope
from moescope.analysis.failover_facts import FailoverFacts, read_failover_facts
from moescope.analysis.partial_failure import PassTimes, slow_down
from moescope.analysis.partial_failure_answer import SlowAnswer, read_slow_answer
from moescope.analysis.partial_failure_times import read_pass_times
from moescope.analysis.readiness_evidence import DelayForecast, Unknown
from moescope.analysis.readiness_protocol import WorkerSlowRules
from moescope.analysis.store import Store
from moescope.schemas.attributes import Phase
from moescope.schemas.records import FloatArray
from moescope.schemas.settings import Settings


def read_slow_forecast(
    store: Store,
    scopes: Sequence[LoadScope],
    window_seconds: float,
    settings: Settings,
    rules: WorkerSlowRules,
) -> DelayForecast | Unknown:
    """Predict TTFT and TPOT while the protocol's rank, or the worst one, takes so many times as long.

    Raises:
        StoreError: the store cannot answer.
    """
    facts = read_failover_facts(store, scopes, window_seconds, settings) if scopes else None
    if facts is None:
        return Unknown("No rank has said which experts it holds, so nobody knows who waits for whom.")
    times = read_pass_times(store, facts)
    if not times:
        return Unknown(
            "Not every rank reports how long its forward passes take, so nothing can be predicted."
        )
    row = _worst_row(facts, times, rules)
    if row is None:
        return Unknown(f"Rank {rules.rank} has not said which experts it holds.")
    return forecast_of(read_slow_answer(store, facts, row, rules.factor))


def _worst_row(facts: FailoverFacts, times: Mapping[Phase, PassTimes], rules: WorkerSlowRules) -> int | None:
    """The rank whose slowness makes the passes of all longest."""
    if rules.rank is not None:
        return facts.row_of_rank(rules.rank)
    worst = [
        sum(_mean(slow_down(one, row, rules.factor).ratio, facts.own_share) for one in times.values())
        for row in range(len(facts.ranks))
    ]
    return int(np.argmax(worst))


def forecast_of(answer: SlowAnswer) -> DelayForecast:
    """The mean request's latency, and the share of tokens that wait; infinite where nothing keeps up."""
    ttft = answer.ttft_seconds * _mean(answer.requests.ttft_ratio, answer.weights)
    tpot = answer.tpot_seconds * _mean(answer.requests.tpot_ratio, answer.weights)
    passes = answer.passes.get(Phase.DECODE) or next(iter(answer.passes.values()))
    parts = [
        f"{name} {_amount(after)} ({words.seconds(now)} now)"
        for name, after, now in (
            ("TTFT", ttft, answer.ttft_seconds),
            ("TPOT", tpot, answer.tpot_seconds),
        )
        if not np.isnan(after)
    ]
    expected = f": expected {' and '.join(parts)} in the mean" if parts else ""
    return DelayForecast(
        rank=answer.rank,
        token_share=passes.touching_any_share,
        ttft_seconds=None if np.isnan(ttft) else ttft,
        tpot_seconds=None if np.isnan(tpot) else tpot,
        evidence=(
            f"If rank {answer.rank} took {answer.times_slower:g} times as long, "
            f"{words.percent(passes.touching_any_share)} of the tokens would wait for it in some "
            f"layer{expected}."
        ),
    )


def _mean(values: FloatArray, weights: FloatArray) -> float:
    """Over the ranks, by the tokens that their requests bring."""
    return float(np.average(values, weights=weights if weights.any() else None))


def _amount(seconds: float) -> str:
    return "without end" if np.isinf(seconds) else words.seconds(seconds)
