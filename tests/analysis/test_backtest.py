"""A plan is scored on the window after it, and what is said of the next holds."""

import itertools

import numpy as np
import pytest

from moescope.analysis.backtest import BacktestVerdict, backtest, last_window, sum_of_windows
from moescope.analysis.forecast import forecast_load
from moescope.analysis.gain_spread import spread_of
from moescope.analysis.placement_score import balance_ratio
from moescope.analysis.replan import replan
from moescope.analysis.replication import PlanRules, plan_replication
from moescope.schemas.errors import ShapeError
from moescope.schemas.topology import MODEL_SHAPES, place_contiguously
from tests.analysis.drifting_loads import count_tokens, expected_shares
from tests.analysis.mixtral_counts import read_mixtral_counts
from tests.analysis.placements import pack_greedily, placement_of

ONE = np.ones(1)


def plan_for(ranks, redundant):
    return lambda tokens: (
        plan_replication(tokens, PlanRules(ranks=ranks, redundant_experts=redundant)).placement
    )


def test_a_plan_is_scored_on_the_window_after_it_only():
    windows = np.arange(1, 5)[:, None, None] * np.array([[[13, 23, 6, 79]]])
    seen = []

    def note(tokens):
        seen.append(tokens.tolist())
        return placement_of([[0, 3, 1, 2]], ranks=2, experts=4)

    result = backtest(windows, placement_of([[0, 1, 2, 3]], ranks=2, experts=4), note, design_effect=ONE)

    assert seen == [(window * 1.0).tolist() for window in windows[:3]]
    assert result.ratio_before[:, 0] == pytest.approx([85 / 60.5] * 3)
    assert result.ratio_after[:, 0] == pytest.approx([92 / 60.5] * 3)
    assert result.gain_mean == pytest.approx(-7 / 60.5)


def test_what_is_planned_for_is_made_of_the_windows_so_far():
    windows = np.arange(1, 5)[:, None, None] * np.array([[[13, 23, 6, 79]]])
    contiguous = placement_of([[0, 1, 2, 3]], ranks=2, experts=4)
    seen = []

    def note(tokens):
        seen.append(tokens[0, 0])
        return contiguous

    backtest(windows, contiguous, note, design_effect=ONE, plan_for=sum_of_windows)

    assert seen == [13, 39, 78]


def test_a_standing_imbalance_is_worth_a_plan():
    shares = expected_shares("stationary", windows=9, layers=3, experts=64, seed=5)
    counts = count_tokens(shares, 200_000, seed=7)
    contiguous = placement_of([list(range(64))] * 3, ranks=16, experts=64)

    result = backtest(counts, contiguous, plan_for(16, 16), design_effect=np.ones(3))

    assert result.verdict is BacktestVerdict.WORTH_IT
    assert 0 < result.gain_low <= result.gain_mean <= result.gain_high
    assert result.net_gain <= result.gain_mean


def test_a_plan_from_the_forecast_does_better_on_noisy_windows():
    shares = expected_shares("stationary", windows=9, layers=3, experts=64, seed=5)
    counts = count_tokens(shares, 1_300, seed=7)
    contiguous = placement_of([list(range(64))] * 3, ranks=8, experts=64)

    gains = [
        backtest(counts, contiguous, plan_for(8, 8), design_effect=np.ones(3), plan_for=what).gain_mean
        for what in (last_window, lambda seen: forecast_load(seen, np.ones(3)).tokens)
    ]

    assert gains[1] > gains[0]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("clustering", [1, 8])
def test_a_uniform_router_is_left_alone(seed, clustering):
    shares = np.full((9, 5, 64), 1 / 64)
    counts = count_tokens(shares, 13_000, seed=seed, clustering=clustering)
    contiguous = placement_of([list(range(64))] * 5, ranks=8, experts=64)

    result = backtest(counts, contiguous, plan_for(8, 8), design_effect=np.full(5, float(clustering)))

    assert result.verdict is BacktestVerdict.LEAVE_IT
    assert result.net_gain < 0.005


def test_a_placement_that_is_already_good_is_left_alone():
    shares = expected_shares("stationary", windows=8, layers=3, experts=64, seed=3)
    counts = count_tokens(shares, 20_000, seed=3)
    good = pack_greedily(shares[0], ranks=8, redundant=8)

    result = backtest(
        counts,
        good,
        lambda tokens: replan(tokens, good, max_moved_share=0.05).placement,
        design_effect=np.ones(3),
    )

    assert result.verdict is BacktestVerdict.LEAVE_IT


def test_one_expert_too_hot_for_a_rank_says_that_only_replicas_can_help():
    shares = np.full((6, 2, 16), 1.0)
    shares[:, :, 5] = 40
    counts = count_tokens(shares / shares.sum(axis=2, keepdims=True), 13_000, seed=1)
    contiguous = placement_of([list(range(16))] * 2, ranks=8, experts=16)

    result = backtest(counts, contiguous, plan_for(8, 0), design_effect=np.ones(2))

    assert result.verdict is BacktestVerdict.ONLY_REPLICAS


@pytest.mark.parametrize(("windows", "assignments"), [(1, 20_000), (3, 20_000), (9, 79)])
def test_few_windows_or_few_tokens_are_too_little_data(windows, assignments):
    shares = expected_shares("stationary", windows=windows, layers=2, experts=64, seed=5)
    counts = count_tokens(shares, assignments, seed=5)
    contiguous = placement_of([list(range(64))] * 2, ranks=8, experts=64)

    result = backtest(counts, contiguous, plan_for(8, 8), design_effect=np.ones(2))

    assert result.verdict is BacktestVerdict.TOO_LITTLE_DATA
    assert result.windows == windows


def test_windows_and_layers_without_tokens_are_no_evidence():
    shares = expected_shares("stationary", windows=9, layers=2, experts=64, seed=5)
    counts = count_tokens(shares, 20_000, seed=5)
    counts[4] = 0
    counts[:, 1] = 0
    contiguous = placement_of([list(range(64))] * 2, ranks=8, experts=64)

    result = backtest(counts, contiguous, plan_for(8, 8), design_effect=np.array([1.0, np.nan]))

    assert result.ratio_before.shape == (6, 2)
    assert np.isnan(result.ratio_after[:, 1]).all()
    assert result.verdict is BacktestVerdict.WORTH_IT
    assert np.isfinite([result.gain_low, result.net_gain, result.noise_floor]).all()


@pytest.mark.parametrize("kind", ["stationary", "slow drift", "fast drift", "topic mix"])
def test_the_gain_of_the_next_window_lies_in_the_range_printed_before(kind):
    hits = []
    for seed in range(24):
        shares = expected_shares(kind, windows=9, layers=3, experts=64, seed=seed)
        counts = count_tokens(shares, 20_000, seed=seed)
        contiguous = placement_of([list(range(64))] * 3, ranks=8, experts=64)

        def make_plan(tokens):
            return pack_greedily(tokens, ranks=8, redundant=8)

        result = backtest(counts[:-1], contiguous, make_plan, design_effect=np.ones(3))
        gain = balance_ratio(counts[-1], contiguous) - balance_ratio(counts[-1], make_plan(counts[-2]))
        hits.append(result.gain_low <= gain.mean() <= result.gain_high)

    assert np.mean(hits) >= 0.9


@pytest.mark.parametrize(("ranks", "redundant"), [(4, 4), (8, 8), (4, 0), (8, 16)])
def test_on_real_counts_the_gain_on_an_unseen_domain_lies_in_the_printed_range(ranks, redundant):
    """Mixtral-8x7B, 32 layers, seven domains as windows.

    For every ordered pair (planning domain, scored domain) and every order of the five others, what
    ``backtest`` prints from the other five and the planning domain, in that order, is a range for the gain
    of the plan from the planning domain on the scored one, which nothing before has seen.
    """
    counts = read_mixtral_counts()
    contiguous = place_contiguously(MODEL_SHAPES["mixtral"], ranks)
    make_plan = plan_for(ranks, redundant)
    plans = {tokens.tobytes(): make_plan(tokens) for tokens in counts.astype(float)}
    gain = np.array(
        [
            [(balance_ratio(t, contiguous) - balance_ratio(t, plan)).mean() for t in counts]
            for plan in plans.values()
        ]
    )
    hits = []
    for planned, scored in itertools.permutations(range(7), 2):
        others = [domain for domain in range(7) if domain not in (planned, scored)]
        for order in itertools.permutations(others):
            windows = [*order, planned]
            spread = spread_of(gain[windows[:-1], windows[1:]])
            hits.append(spread.low <= gain[planned, scored] <= spread.high)
    printed = backtest(
        counts[windows], contiguous, lambda tokens: plans[tokens.tobytes()], design_effect=np.ones(32)
    )

    assert (printed.gain_low, printed.gain_high) == pytest.approx((spread.low, spread.high))
    assert len(hits) == 42 * 120
    assert np.mean(hits) >= 0.9


def test_tokens_of_another_model_are_refused():
    with pytest.raises(ShapeError, match="needs \\[windows, 1, 4\\]"):
        backtest(
            np.ones((3, 2, 4), dtype=int),
            placement_of([[0, 1, 2, 3]], ranks=2, experts=4),
            plan_for(2, 0),
            design_effect=np.ones(2),
        )
