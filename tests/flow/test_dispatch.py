"""`rank_traffic`, `dispatch_wait`, `dispatch_time`, `step_time` and `tokens_per_second`: rank to SQL."""

from pathlib import Path

import numpy as np
import pytest

from moescope import analysis
from moescope.collector.expert_load import Row
from moescope.schemas import metrics
from moescope.schemas.attributes import (
    DIRECTION,
    EXCLUDED,
    LAYER,
    PHASE,
    STAGE,
    Component,
    Direction,
    DispatchStage,
    Excluded,
    Phase,
)

DECODE = {PHASE: Phase.DECODE.value}
PREFILL = {PHASE: Phase.PREFILL.value}
SENT = {DIRECTION: Direction.TRANSMIT.value}
RECEIVED = {DIRECTION: Direction.RECEIVE.value}
DISPATCH = {STAGE: DispatchStage.DISPATCH.value}


def test_traffic_is_seen_from_the_rank_that_counted_it(fleet):
    first, second = fleet.rank(0), fleet.rank(1)
    for _ in range(2):
        first.add_indexed(metrics.RANK_IO, [0, 79], DECODE | SENT)
        second.add_indexed(metrics.RANK_IO, [79, 0], DECODE | RECEIVED)
        second.add_indexed(metrics.RANK_IO, [13, 0], DECODE | SENT)
        fleet.close_window()

    assert fleet.rows("rank_traffic", "ep_rank, peer_rank, bytes_sent, bytes_received") == [
        (0, 0, 0, 0),
        (0, 1, 158, 0),
        (1, 0, 26, 158),
        (1, 1, 0, 0),
    ]


def test_tokens_without_duplicates_stand_beside_assignments_and_phases_are_apart(fleet):
    rank = fleet.rank(0)
    for phase, tokens, assignments in ((DECODE, [13, 23], [26, 79]), (PREFILL, [130, 230], [260, 790])):
        rank.add_indexed(metrics.RANK_TOKENS, tokens, phase)
        rank.add_indexed(metrics.RANK_ASSIGNMENTS, assignments, phase)
    fleet.close_window()

    assert fleet.rows("rank_traffic", "phase, peer_rank, tokens, assignments, bytes_sent") == [
        ("decode", 0, 13, 26, 0),
        ("decode", 1, 23, 79, 0),
        ("prefill", 0, 130, 260, 0),
        ("prefill", 1, 230, 790, 0),
    ]


def test_bytes_by_layer_are_summed_over_the_layers(fleet):
    layers = np.array([1, 3])
    fleet.rank(0).add_indexed(metrics.RANK_IO, [[0, 13], [0, 23]], DECODE | SENT, layers)
    fleet.close_window()

    assert fleet.rows("rank_traffic", "peer_rank, bytes_sent") == [(0, 0), (1, 36)]


def test_row_of_the_wait_matrix_is_the_rank_that_waited(fleet):
    first, second = fleet.rank(0), fleet.rank(1)
    first.add_indexed(metrics.DISPATCH_WAIT, [0, 790_000_000], DISPATCH)
    second.add_indexed(metrics.DISPATCH_WAIT, [13_000_000, 0], DISPATCH)
    first.add_indexed(metrics.DISPATCH_WAIT, [0, 5_000_000], {STAGE: DispatchStage.COMBINE.value})
    fleet.close_window()

    assert fleet.rows("dispatch_wait", "stage, ep_rank, peer_rank, wait_seconds", "wait_seconds > 0") == [
        ("combine", 0, 1, 0.005),
        ("dispatch", 0, 1, 0.79),
        ("dispatch", 1, 0, 0.013),
    ]


def test_dispatch_time_has_exact_sums_and_interpolated_quantiles(fleet):
    rank = fleet.rank(0)
    rank.observe(metrics.DISPATCH_DURATION, 0.002, DISPATCH | DECODE, times=79)
    rank.observe(metrics.DISPATCH_DURATION, 0.2, DISPATCH | DECODE, times=21)
    rank.observe(metrics.DISPATCH_DURATION, 0.3, DISPATCH | PREFILL, times=13)
    fleet.close_window()

    columns = "phase, layer, calls, total_seconds, mean_seconds, p50_seconds, p99_seconds"
    total = 79 * 0.002 + 21 * 0.2
    assert fleet.rows("dispatch_time", columns) == [
        (
            *("decode", -1, 100, pytest.approx(total), pytest.approx(total / 100)),
            pytest.approx(0.001 + 0.0015 * 50 / 79),
            pytest.approx(0.1 + 0.15 * 20 / 21),
        ),
        (
            *("prefill", -1, 13, pytest.approx(3.9), pytest.approx(0.3)),
            pytest.approx(0.25 + 0.25 * 0.5),
            pytest.approx(0.25 + 0.25 * 0.99),
        ),
    ]


def test_dispatch_time_by_layer_counts_for_all_layers_too(fleet):
    rank = fleet.rank(0)
    rank.observe(metrics.DISPATCH_DURATION, 0.25, DISPATCH | DECODE | {LAYER: 1}, times=13)
    rank.observe(metrics.DISPATCH_DURATION, 0.5, DISPATCH | DECODE | {LAYER: 3}, times=23)
    fleet.close_window()

    assert fleet.rows("dispatch_time", "layer, calls, total_seconds") == [
        (-1, 36, 14.75),
        (1, 13, 3.25),
        (3, 23, 11.5),
    ]


def test_dispatch_time_said_both_ways_counts_once_for_all_layers(fleet):
    rank = fleet.rank(0)
    rank.observe(metrics.DISPATCH_DURATION, 0.25, DISPATCH | DECODE, times=13)
    rank.observe(metrics.DISPATCH_DURATION, 0.25, DISPATCH | DECODE | {LAYER: 1}, times=13)
    fleet.close_window()

    assert fleet.rows("dispatch_time", "layer, calls, total_seconds") == [(-1, 13, 3.25), (1, 13, 3.25)]


def test_bytes_said_both_ways_count_once(fleet):
    rank = fleet.rank(0)
    rank.add_indexed(metrics.RANK_IO, [0, 13], DECODE | SENT)
    # The same attributes in another order: one window cannot hold both shapes of one series.
    rank.add_indexed(metrics.RANK_IO, [[0, 6], [0, 7]], SENT | DECODE, np.array([1, 3]))
    fleet.close_window()

    assert fleet.rows("rank_traffic", "peer_rank, bytes_sent", "bytes_sent > 0") == [(1, 13)]


def test_step_time_adds_steps_and_tokens_by_phase(fleet):
    rank = fleet.rank(0)
    for _ in range(3):
        rank.observe(metrics.STEP_DURATION, 0.04, DECODE, times=23)
        rank.observe(metrics.STEP_TOKENS, 13, DECODE, times=23)
        rank.observe(metrics.STEP_DURATION, 0.4, PREFILL)
        rank.observe(metrics.STEP_TOKENS, 790, PREFILL)
        fleet.close_window()

    columns = "phase, steps, tokens, total_seconds, mean_seconds, p50_seconds, p99_seconds"
    assert fleet.rows("step_time", columns) == [
        (
            *("decode", 69, 3 * 23 * 13, pytest.approx(2.76), pytest.approx(0.04)),
            pytest.approx(0.025 + 0.025 * 0.5),
            pytest.approx(0.025 + 0.025 * 0.99),
        ),
        (
            *("prefill", 3, 2370, pytest.approx(1.2), pytest.approx(0.4)),
            pytest.approx(0.25 + 0.25 * 0.5),
            pytest.approx(0.25 + 0.25 * 0.99),
        ),
    ]


def test_token_rate_is_over_the_time_that_the_windows_cover(fleet):
    rank = fleet.rank(0)
    for tokens in (130, 230):
        rank.begin_step((Row.DECODE, tokens))
        fleet.close_window()
    rank.begin_step((Row.WARMUP, 79))
    fleet.close_window()

    assert fleet.rows("tokens_per_second", "phase, excluded, tokens, tokens_per_second", "tokens > 0") == [
        ("", "warmup", 79, pytest.approx(79 / 30)),
        ("decode", "none", 360, 12.0),
    ]


def test_scraper_speaks_for_a_rank_only_where_the_rank_does_not(fleet):
    load = DECODE | {EXCLUDED: Excluded.NONE.value}
    scraper = fleet.process(Component.SCRAPER)
    scraper.add(metrics.TOKENS, 130, load)
    fleet.close_window(60)
    rank = fleet.rank(0)
    scraper.add(metrics.TOKENS, 130, load)
    rank.begin_step((Row.DECODE, 120))
    fleet.close_window(60)

    view = fleet.rows("tokens_per_second", "time, tokens, tokens_per_second", "phase = 'decode'")
    assert view == [(fleet.minute(0), 130, pytest.approx(130 / 60)), (fleet.minute(1), 120, 2.0)]
    assert rates_of_the_pages(fleet) == [(0, 60_000, 130), (60_000, 60_000, 120)], "as the pages have it"


def rates_of_the_pages(fleet) -> list[tuple]:
    """What the query of the pages answers, from the deployment's start on: minute, covered and tokens."""
    text = (Path(analysis.__file__).parent / "queries" / "token_rate.sql").read_text(encoding="utf-8")
    start_ms = fleet.clock.start_s * 1000
    text = text.replace("FROM token_count", "FROM {db}.token_count")
    return fleet.ask(
        f"SELECT minute_ms - {start_ms}, covered_ms, tokens FROM ({text}) WHERE phase = 'decode'",
        start_ms=start_ms,
        end_ms=start_ms + 600_000,
    )
