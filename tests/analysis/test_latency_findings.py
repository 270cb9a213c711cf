"""What the Overview says of requests."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from moescope.analysis.distribution import Distribution, DistributionKey, Percentiles
from moescope.analysis.finding import Severity
from moescope.analysis.latency_findings import list_latency_findings, measure_rise
from moescope.analysis.latency_report import LatencyAnswer
from moescope.analysis.requests import GoodputSteps, RequestLoad, judge_goodput
from moescope.analysis.span import Span
from moescope.schemas import metrics
from moescope.schemas.settings import Settings

SETTINGS = Settings(contract_ttft_seconds=2, contract_tpot_seconds=0.1, contract_missed_share=0.05)
MINUTES = 15
SPAN = Span("fleet", "", 0, MINUTES * 60_000, MINUTES * 60_000, 60)
TIMES = (np.arange(MINUTES) * 60_000).astype("datetime64[ms]")


def _distribution(metric, mean_per_minute, observations=23):
    mean = np.broadcast_to(np.asarray(mean_per_minute, dtype=float), (MINUTES,))
    number = np.broadcast_to(np.asarray(observations), (MINUTES,))
    whole = Percentiles(int(number.sum()), float(np.average(mean, weights=number)), 1.3, 7.9, 9.7)
    return Distribution(metric, TIMES, number, mean, mean, mean, mean, whole)


def _answer(*, good: int, requests: int = 23, waiting: float = 0.0, **seconds: Any) -> LatencyAnswer:
    named = {
        "ttft": metrics.TIME_TO_FIRST_TOKEN,
        "tpot": metrics.TIME_PER_OUTPUT_TOKEN,
        "queue": metrics.REQUEST_QUEUE_DURATION,
    }
    distributions = {
        DistributionKey(named[name].name): _distribution(named[name], mean) for name, mean in seconds.items()
    }
    ones = np.ones(MINUTES, dtype=np.int64)
    steps = GoodputSteps(TIMES, ones * requests, ones * good, ones * 79, ones * 79, ones * 8, ones * 480.0)
    load = RequestLoad(TIMES, ones * 1.0, np.full(MINUTES, waiting))
    return LatencyAnswer(SPAN, distributions, load, judge_goodput(steps, SPAN.seconds, SETTINGS))


def _findings(answer):
    return list(list_latency_findings(answer, SETTINGS))


def test_contract_that_is_missed_is_a_problem_with_its_numbers():
    (finding,) = _findings(_answer(good=13, ttft=3.0, tpot=0.02, queue=0.3))
    assert finding.severity is Severity.PROBLEM
    assert finding.title == "43 % of 345 requests missed the latency contract."
    assert "TTFT: 1.30 s at the median, 7.90 s at p90, the contract allows 2 s." in finding.detail
    assert "Up to 5.0 % may miss it." in finding.detail
    assert "queue" not in finding.title + finding.detail


def test_queue_is_named_where_it_is_most_of_the_wait():
    (finding,) = _findings(_answer(good=13, ttft=3.0, queue=2.4, waiting=79.0))
    assert finding.title.endswith("missed the latency contract: they wait in the queue for prefill.")
    assert "80 % of the mean TTFT is waiting to be scheduled" in finding.detail
    assert "79 requests waited at the end." in finding.detail


def test_as_many_missed_as_are_allowed_is_no_finding():
    assert _findings(_answer(good=19, requests=20, ttft=1.0)) == []


def _stopping(*, before: int, running: float = 0.0) -> LatencyAnswer:
    answer = _answer(good=before, requests=before, ttft=0.2)
    counts = np.array([before] * 10 + [0] * 5)
    ones = np.ones(MINUTES, dtype=np.int64)
    steps = GoodputSteps(TIMES, counts, counts, counts, counts, ones * 8, ones * 480.0)
    load = RequestLoad(TIMES, np.full(MINUTES, running), np.zeros(MINUTES))
    return replace(answer, goodput=judge_goodput(steps, SPAN.seconds, SETTINGS), load=load)


def test_requests_that_stop_are_a_warning():
    (finding,) = _findings(_stopping(before=13))
    assert finding.severity is Severity.WARNING
    assert finding.title == "No request in the newest 5 min; it was 13 a minute before."


def test_few_requests_may_stop_by_chance_and_long_ones_run_on():
    assert _findings(_stopping(before=3)) == []
    assert _findings(_stopping(before=13, running=1.0)) == []


def test_few_requests_decide_nothing():
    steps = _answer(good=0, requests=1, ttft=3.0)
    assert steps.goodput.misses_contract
    assert _findings(steps) == []


def test_first_token_that_takes_three_times_as_long_within_the_contract_is_a_note():
    ttft = [0.2] * 10 + [0.6] * 5
    (finding,) = _findings(_answer(good=23, ttft=ttft, queue=[0.01] * 10 + [0.4] * 5))
    assert finding.severity is Severity.NOTE
    assert finding.title == "TTFT is 3.0 × what it was: 600 ms on average, 200 ms before."
    assert "In the queue for prefill requests wait 400 ms, 10 ms before." in finding.detail


def test_what_rose_more_is_named():
    slower = {"ttft": [0.2] * 10 + [0.5] * 5, "tpot": [0.013] * 10 + [0.079] * 5}
    (finding,) = _findings(_answer(good=23, **slower))
    assert finding.title == "TPOT is 6.1 × what it was: 79 ms on average, 13 ms before."
    assert "The contract (100 ms) still holds" in finding.detail


@pytest.mark.parametrize(("now", "is_said"), [(0.39, False), (0.41, True)])
def test_less_than_twice_as_long_is_no_note(now, is_said):
    assert bool(_findings(_answer(good=23, ttft=[0.2] * 10 + [now] * 5))) is is_said


def test_rise_far_below_the_contract_is_nobodys_concern():
    assert _findings(_answer(good=23, ttft=[0.005] * 10 + [0.035] * 5)) == []


def test_means_are_weighted_by_requests_and_need_some_on_either_side():
    answer = _answer(good=23)
    ttft = metrics.TIME_TO_FIRST_TOKEN
    observations = [13] * 5 + [0] * 5 + [79, 0, 0, 0, 0]
    mean = [0.1] * 5 + [np.nan] * 5 + [0.5] + [np.nan] * 4
    answer.distributions[DistributionKey(ttft.name)] = _distribution(ttft, mean, observations)
    rise = measure_rise(answer, ttft)
    assert (rise.before, rise.now, rise.now_seconds) == (pytest.approx(0.1), 0.5, 300)
    answer.distributions[DistributionKey(ttft.name)] = _distribution(
        ttft, mean, [13] * 5 + [0] * 5 + [19, 0, 0, 0, 0]
    )
    assert measure_rise(answer, ttft) is None
