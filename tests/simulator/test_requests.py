"""What requests wait for, by engine; and what became of them, without a look at their metrics."""

import numpy as np
import pytest

from moescope.schemas.settings import load_settings
from moescope.simulator.front import note_requests
from moescope.simulator.group_window import GroupWindow
from moescope.simulator.requests import FlowWindow, Pace, RequestFlow, Requests
from moescope.simulator.trace import Arrivals
from moescope.simulator.truth import RequestTruth


def arrivals(engines: list[int], *, prompt: int = 1300, output: int = 9999) -> Arrivals:
    count = len(engines)
    whole = (np.full(count, value) for value in (prompt, 0, output))
    return Arrivals(np.zeros(count), np.array(engines), *whole)


def pace(decode: list[float], *, prefill: float = 0.0) -> Pace:
    engines = len(decode)
    return Pace(
        np.full(engines, prefill),
        np.array(decode),
        shares_steps=True,
        seconds_between_starts=np.zeros(engines),
    )


def test_slow_passes_of_one_engine_do_not_delay_the_other():
    flow = RequestFlow(engines=2)
    window = flow.prefill(arrivals([0, 1]), 0, 10, pace([0.02, 0.05]))
    flow.decode(window, window.prefilled, 0, 10, pace([0.02, 0.05]))

    assert window.decode_tokens.tolist() == [500, 200]
    assert window.seconds_per_decode_token.tolist() == [0.02, 0.05]


def test_prefill_delays_the_passes_of_its_own_engine():
    flow = RequestFlow(engines=3)
    window = flow.prefill(arrivals([0, 0, 2]), 0, 10, pace([0.02] * 3, prefill=2.6 / 2600))
    flow.decode(window, Requests.none(), 0, 10, pace([0.02] * 3))

    assert window.prefill_share == pytest.approx([0.26, 0, 0.13])
    assert window.seconds_per_decode_token == pytest.approx([0.02 / 0.74, 0.02, 0.02 / 0.87])


def finished(*, first_token: list[float], output: list[int], ended: list[float]) -> GroupWindow:
    rows = Requests.of(arrivals([0] * len(output)))
    rows.output, rows.first_token = np.array(output), np.array(first_token)
    rows.started = rows.first_token / 2
    none, seconds = np.zeros(1, dtype=np.int64), np.zeros(1)
    flow = FlowWindow(none, none, seconds, seconds, rows, rows, rows, np.array(ended))
    return GroupWindow(0, 60, [], flow, rows, {}, seconds, None, 0, 0, 0)


def test_goodput_and_tpot_are_those_of_the_requests():
    settings = load_settings(
        {"MOESCOPE_CONTRACT_TTFT_SECONDS": "2", "MOESCOPE_CONTRACT_TPOT_SECONDS": "0.05"}
    )
    truth = RequestTruth()
    window = finished(
        first_token=[1.0, 1.0, 1.0, 3.0],
        output=[1, 24, 80, 14],
        ended=[1.0, 1.0 + 23 * 0.04, 1.0 + 79 * 0.06, 3.0 + 13 * 0.01],
    )

    for _ in range(2):
        note_requests(truth, window, settings)

    assert truth.goodput == {"requests": 8, "good_requests": 4, "output_tokens": 238, "good_tokens": 50}
    assert truth.latency["tpot"] == (6, pytest.approx(2 * (0.04 + 0.06 + 0.01))), "none for one output token"
    assert truth.latency["ttft"] == (8, 12.0)
    assert truth.latency["queue"] == (8, 6.0)
    assert truth.latency["e2e"] == (8, pytest.approx(2 * (1 + 1.92 + 5.74 + 3.13)))
