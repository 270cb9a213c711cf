"""`request_latency`, `request_load` and `goodput` on known requests, from the front end to SQL."""

import pytest

from moescope.collector.requests import FinishedRequest, RequestMetrics
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
