"""`request_latency`, `request_load` and `goodput` on known requests, from the front end to SQL."""

import pytest

from moescope.collector.requests import FinishedRequest, RequestMetrics
from moescope.schemas import metrics
from moescope.schemas.attributes import Role
from moescope.schemas.settings import Settings


def requests_of(meter, model="known-model") -> RequestMetrics:
    settings = Settings(contract_ttft_seconds=2.0, contract_tpot_seconds=0.1)
    return RequestMetrics(meter, model=model, provider="custom", settings=settings)


def finish(requests: RequestMetrics, *, ttft: float, duration: float, tokens: int, queue: float) -> None:
    requests.first_token(ttft)
    requests.finished(FinishedRequest(duration, ttft, tokens, queue))


def latency(fleet, metric: str, columns: str):
    return fleet.rows("request_latency", columns, f"metric = '{metric}'")


def test_mean_is_exact_and_quantiles_are_interpolated_inside_their_bucket(fleet):
    requests = requests_of(fleet.process())
    # Thirteen in the bucket (0.25, 0.5], three in (0.5, 0.75], four in (5, 7.5].
    for seconds, times in ((0.3, 13), (0.6, 3), (6.0, 4)):
        for _ in range(times):
            requests.first_token(seconds)
    fleet.close_window()

    ((time, observations, mean, p50, p90, p99),) = latency(
        fleet, "ttft", "time, observations, mean_seconds, p50_seconds, p90_seconds, p99_seconds"
    )
    assert (time, observations) == (fleet.minute(), 20)
    assert mean == pytest.approx((13 * 0.3 + 3 * 0.6 + 4 * 6.0) / 20)
    assert p50 == pytest.approx(0.25 + 0.25 * 10 / 13)
    assert p90 == pytest.approx(5.0 + 2.5 * (18 - 16) / 4)
    assert p99 == pytest.approx(5.0 + 2.5 * (19.8 - 16) / 4)


def test_quantile_beyond_the_last_bound_is_that_bound(fleet):
    requests = requests_of(fleet.process())
    for _ in range(7):
        requests.first_token(500.0)
    fleet.close_window()

    assert latency(fleet, "ttft", "observations, mean_seconds, p50_seconds, p99_seconds") == [
        (7, 500.0, metrics.TIME_TO_FIRST_TOKEN.bounds[-1], metrics.TIME_TO_FIRST_TOKEN.bounds[-1])
    ]


def test_request_of_one_token_has_no_tpot(fleet):
    requests = requests_of(fleet.process())
    for _ in range(13):
        finish(requests, ttft=0.5, duration=0.5, tokens=1, queue=0.1)
    fleet.close_window()

    assert latency(fleet, "tpot", "observations") == []
    assert latency(fleet, "ttft", "observations") == [(13,)]

    finish(requests, ttft=0.5, duration=1.5, tokens=11, queue=0.1)
    fleet.close_window()
    assert latency(fleet, "tpot", "observations, mean_seconds") == [(1, pytest.approx(0.1))]


def test_every_latency_has_its_name_and_its_own_numbers(fleet):
    requests = requests_of(fleet.process())
    finish(requests, ttft=0.25, duration=2.25, tokens=5, queue=0.125)
    requests.next_tokens(0.5, times=4)
    fleet.close_window()

    assert fleet.rows("request_latency", "metric, observations, mean_seconds") == [
        ("e2e", 1, 2.25),
        ("itl", 4, 0.5),
        ("queue", 1, 0.125),
        ("tpot", 1, 0.5),
        ("ttft", 1, 0.25),
    ]


def test_processes_of_a_group_are_added_and_roles_and_models_are_apart(fleet):
    for role, seconds in ((Role.PREFILL, 1.0), (Role.PREFILL, 3.0), (Role.DECODE, 0.5)):
        requests_of(fleet.process(role=role)).first_token(seconds)
    requests_of(fleet.process(role=Role.DECODE), model="another").first_token(0.25)
    fleet.close_window()

    assert fleet.rows("request_latency", "role, model, observations, mean_seconds") == [
        ("decode", "another", 1, 0.25),
        ("decode", "known-model", 1, 0.5),
        ("prefill", "known-model", 2, 2.0),
    ]


def test_windows_of_a_minute_are_added_and_the_next_minute_is_apart(fleet):
    requests = requests_of(fleet.process())
    for window in range(7):
        for _ in range(window + 1):
            requests.first_token(0.5)
        fleet.close_window()

    assert latency(fleet, "ttft", "time, observations") == [(fleet.minute(0), 21), (fleet.minute(1), 7)]


def test_load_is_the_mean_over_the_windows_summed_over_the_processes(fleet):
    first, second = fleet.process(), fleet.process()
    for running, waiting in ((13, 2), (23, 3), (79, 7)):
        first.set_state(metrics.REQUESTS_RUNNING, running)
        first.set_state(metrics.REQUESTS_WAITING, waiting)
        second.set_state(metrics.REQUESTS_RUNNING, 1)
        fleet.close_window(20)

    assert fleet.rows("request_load", "time, running, waiting") == [
        (fleet.minute(), pytest.approx((13 + 23 + 79) / 3 + 1), 4.0)
    ]


def test_goodput_counts_what_kept_the_contract_beside_everything(fleet):
    fleet.rank(0, 2)
    requests = requests_of(fleet.process(ep_size=2))
    for _ in range(13):
        finish(requests, ttft=1.0, duration=2.0, tokens=21, queue=0.1)  # 0.05 s a token
    for _ in range(5):
        finish(requests, ttft=3.0, duration=4.0, tokens=21, queue=0.1)  # the first token is late
    for _ in range(3):
        finish(requests, ttft=1.0, duration=9.0, tokens=11, queue=0.1)  # 0.8 s a token
    finish(requests, ttft=1.0, duration=1.0, tokens=1, queue=0.1)  # one token: the first one decides
    fleet.close_window()

    columns = "requests, good_requests, output_tokens, good_tokens, ranks, covered_seconds"
    assert fleet.rows("goodput", columns) == [
        (22, 14, 13 * 21 + 5 * 21 + 3 * 11 + 1, 13 * 21 + 1, 2, 5.0)  # one of the two ranks, ten seconds
    ]


def test_process_that_took_the_place_of_another_does_not_count_twice(fleet):
    before = fleet.process()
    for _ in range(3):
        before.set_state(metrics.REQUESTS_RUNNING, 23)
        before.set_state(metrics.REQUESTS_WAITING, 13)
        fleet.close_window()
    fleet.close()
    fleet.forget()
    after = fleet.process()
    for _ in range(3):
        after.set_state(metrics.REQUESTS_RUNNING, 79)
        after.set_state(metrics.REQUESTS_WAITING, 13)
        fleet.close_window()

    assert fleet.rows("request_load", "time, running, waiting") == [
        (fleet.minute(), pytest.approx((23 + 79) / 2), pytest.approx(13))
    ]


def test_windows_count_by_their_length_and_a_phase_of_its_own_takes_nothing_away(fleet):
    first = fleet.process()
    first.set_state(metrics.REQUESTS_RUNNING, 13)
    fleet.close_window(5)
    second = fleet.process()  # five seconds later than the first one
    for seconds, running in ((10, 23), (40, 79)):
        first.set_state(metrics.REQUESTS_RUNNING, running)
        second.set_state(metrics.REQUESTS_RUNNING, 2)
        fleet.close_window(seconds)

    ((running,),) = fleet.rows("request_load", "running")
    assert running == pytest.approx((5 * 13 + 10 * 23 + 40 * 79) / 55 + 2)


def test_load_of_windows_longer_than_a_minute_is_what_they_say(fleet):
    process = fleet.process()
    process.set_state(metrics.REQUESTS_RUNNING, 79)
    fleet.close_window(300)

    assert fleet.rows("request_load", "time, running") == [(fleet.minute(2), 79.0)]


def test_group_in_which_no_request_finished_is_paid_for(fleet):
    """A prefill group, and idle minutes: its ranks are there, and have rows of zeros."""
    for rank in range(3):
        fleet.rank(rank, 3)
    for _ in range(12):
        fleet.close_window()

    columns = "time, requests, good_requests, output_tokens, good_tokens, ranks, covered_seconds"
    assert fleet.rows("goodput", columns) == [
        (fleet.minute(0), 0, 0, 0, 0, 3, 60.0),
        (fleet.minute(1), 0, 0, 0, 0, 3, 60.0),
    ]


@pytest.mark.parametrize("seconds", [20, 60, 300])
def test_rank_time_of_goodput_is_the_same_however_long_windows_are(fleet, seconds):
    fleet.rank(0, 2)
    fleet.rank(1, 2)
    fleet.process(ep_size=2)
    for _ in range(600 // seconds):
        fleet.close_window(seconds)

    assert fleet.rows("goodput", "sum(ranks * covered_seconds)") == [(1200.0,)]
