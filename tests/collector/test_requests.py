import pytest

from moescope.collector.requests import FinishedRequest, RequestMetrics
from moescope.collector.tally import Tally
from moescope.schemas import metrics
from moescope.schemas.settings import Settings


class TallyMeter(Tally):
    """A tally is all of a meter but its reporting."""


def finish(*requests: FinishedRequest) -> dict:
    tally = TallyMeter()
    of_model = RequestMetrics(tally, model="tiny", provider="vllm", settings=Settings())  # type: ignore[arg-type]
    for request in requests:
        of_model.finished(request)
    return {
        (record.metric.name, record.attributes.get("moe.contract")): record
        for record in tally.close_window(snapshot=False)
    }


def test_tpot_divides_by_the_gaps_and_not_by_the_tokens():
    assert FinishedRequest(5.0, 1.0, output_tokens=5).token_seconds == 1.0


@pytest.mark.parametrize("output_tokens", [0, 1])
def test_one_output_token_has_no_tpot(output_tokens: int):
    assert FinishedRequest(5.0, 1.0, output_tokens).token_seconds is None
    assert (metrics.TIME_PER_OUTPUT_TOKEN.name, None) not in finish(FinishedRequest(5.0, 1.0, output_tokens))


@pytest.mark.parametrize(
    ("request_", "is_good"),
    [
        (FinishedRequest(2.0, 2.0, 1), True),
        (FinishedRequest(2.01, 2.01, 1), False),
        (FinishedRequest(1.0 + 0.1 * 22, 1.0, 23), True),
        (FinishedRequest(1.0 + 0.11 * 22, 1.0, 23), False),
        (FinishedRequest(0.1, None, 0), False),
    ],
)
def test_a_request_is_good_within_both_limits(request_: FinishedRequest, is_good: bool):
    records = finish(request_)

    contract = "met" if is_good else "missed"
    assert records[(metrics.REQUESTS_FINISHED.name, contract)].value == 1
    assert records[(metrics.REQUEST_OUTPUT_TOKENS.name, contract)].value == request_.output_tokens
