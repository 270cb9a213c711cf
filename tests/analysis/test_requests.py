"""Goodput and its cost, in odd counts."""

import numpy as np
import pytest

from moescope.analysis.requests import GoodputSteps, cost_per_thousand_tokens, judge_goodput, rate_goodput
from moescope.analysis.span import Span
from moescope.schemas.settings import Settings


def _steps(requests, good, tokens=(), good_tokens=(), ranks=()):
    rows = len(requests)
    columns = [requests, good, tokens or [0] * rows, good_tokens or [0] * rows, ranks or [8] * rows]
    times = (np.arange(rows) * 60_000).astype("datetime64[ms]")
    arrays = [np.array(column, dtype=np.int64) for column in columns]
    return GoodputSteps(times, *arrays, arrays[-1] * 60.0)


def test_shares_are_of_all_that_finished():
    good = judge_goodput(_steps([79, 23], [73, 13], [7_919, 1_009], [7_000, 500]), 120.0, Settings())
    assert good.good_share == 86 / 102
    assert good.good_token_share == 7_500 / 8_928
    assert good.good_tokens_per_second == 62.5
    np.testing.assert_allclose(good.good_share_over_time, [73 / 79, 13 / 23])


def test_contract_is_missed_by_more_than_the_share_of_the_settings():
    settings = Settings(contract_missed_share=0.05)
    assert not judge_goodput(_steps([100], [95]), 60.0, settings).misses_contract
    assert judge_goodput(_steps([100], [94]), 60.0, settings).misses_contract


def test_nothing_finished_is_no_missed_contract():
    good = judge_goodput(_steps([], []), 60.0, Settings())
    assert (good.good_share, good.good_token_share, good.misses_contract) == (None, None, False)


def test_minute_in_which_none_finished_has_no_share():
    good = judge_goodput(_steps([0, 13], [0, 13]), 120.0, Settings())
    assert np.isnan(good.good_share_over_time[0])
    assert good.good_share == 1


def test_rates_are_over_what_the_data_covers_of_a_step():
    span = Span("s", "", 0, 120_000, 90_000, 60)
    rates = rate_goodput(_steps([60, 60], [30, 15], [600, 600], [300, 150]), span)
    np.testing.assert_allclose(rates.requests, [1, 2])
    np.testing.assert_allclose(rates.good_requests, [0.5, 0.5])
    np.testing.assert_allclose(rates.output_tokens, [10, 20])
    np.testing.assert_allclose(rates.good_tokens, [5, 5])


def test_cost_is_price_times_rank_hours_by_good_tokens():
    cost = cost_per_thousand_tokens(7_919, rank_seconds=64 * 1_800, rank_hour_price=3.5)
    assert cost == pytest.approx(3.5 * 64 * 0.5 / 7_919 * 1000)


@pytest.mark.parametrize(("tokens", "ranks", "price"), [(0, 64, 3.5), (7_919, 0, 3.5), (7_919, 64, 0.0)])
def test_cost_is_absent_rather_than_zero_or_infinite(tokens, ranks, price):
    assert cost_per_thousand_tokens(tokens, rank_seconds=60 * ranks, rank_hour_price=price) is None


def test_idle_minutes_cost_too():
    settings = Settings(rank_hour_price=3.6)
    busy = judge_goodput(_steps([13], [13], [1_000], [1_000]), 60.0, settings)
    nothing = [0] * 9
    idle_steps = _steps([13, *nothing], [13, *nothing], [1_000, *nothing], [1_000, *nothing])
    idle = judge_goodput(idle_steps, 600.0, settings)
    assert busy.cost_per_thousand == pytest.approx(3.6 * 8 / 60)
    assert idle.cost_per_thousand == pytest.approx(3.6 * 8 / 6)
