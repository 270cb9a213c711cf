"""A forecast beats the last window where load is noisy, and follows it where load has changed."""

import numpy as np
import pytest

from moescope.analysis.forecast import forecast_load, log_shares
from moescope.analysis.placement_score import balance_ratio
from moescope.schemas.errors import ShapeError
from tests.analysis.drifting_loads import count_tokens, expected_shares
from tests.analysis.placements import pack_greedily


def compare(kind, *, assignments, clustering=1):
    """Compare plans on the last window and on the forecast, and the two as guesses of what comes.

    Returns:
        ``[seeds, 2]`` max / mean on the true shares of the next window, ``[seeds, 2]`` divergence of the true
        shares from the guess (the last window being shrunk as the forecast is), and how often a layer
        started afresh.
    """
    ratios, divergences, fresh = [], [], []
    for seed in range(8):
        shares = expected_shares(kind, windows=12, layers=8, experts=128, seed=seed)
        counts = count_tokens(shares[:-1], assignments, seed=79 + seed, clustering=clustering)
        effect = np.full(8, float(clustering))
        forecast = forecast_load(counts, effect)
        plans = [pack_greedily(load, ranks=16, redundant=16) for load in (counts[-1], forecast.tokens)]
        ratios.append([balance_ratio(shares[-1], plan).mean() for plan in plans])
        guesses = (np.exp(log_shares(counts[-1], effect)), forecast.tokens / assignments)
        divergences.append(
            [(shares[-1] * np.log(shares[-1] / guess)).sum(axis=1).mean() for guess in guesses]
        )
        fresh.append(forecast.uses_last_window.mean())
    return np.array(ratios), np.array(divergences), np.mean(fresh)


@pytest.mark.parametrize("clustering", [1, 8])
@pytest.mark.parametrize("assignments", [2_000, 20_000])
def test_it_beats_the_last_window_where_the_router_is_stationary(assignments, clustering):
    ratios, divergences, fresh = compare("stationary", assignments=assignments, clustering=clustering)

    last, forecast = ratios.mean(axis=0)
    assert forecast - 1 < 0.7 * (last - 1)
    assert (ratios[:, 1] < ratios[:, 0]).all()
    assert (divergences[:, 1] < divergences[:, 0]).all()
    assert fresh == 0


@pytest.mark.parametrize(("assignments", "clustering"), [(2_000, 1), (2_000, 8), (20_000, 8)])
@pytest.mark.parametrize("kind", ["slow drift", "fast drift", "topic mix"])
def test_it_beats_a_noisy_last_window_where_load_drifts(kind, assignments, clustering):
    ratios, divergences, _ = compare(kind, assignments=assignments, clustering=clustering)

    assert (ratios[:, 1] - ratios[:, 0]).mean() < 0.015  # about two standard errors of eight seeds
    assert divergences[:, 1].mean() < divergences[:, 0].mean()


@pytest.mark.parametrize(("kind", "at_most"), [("slow drift", 1.02), ("fast drift", 0.9), ("topic mix", 1.2)])
def test_it_is_hardly_worse_than_a_last_window_with_little_noise(kind, at_most):
    ratios, divergences, _ = compare(kind, assignments=20_000)

    assert (ratios[:, 1] - ratios[:, 0]).mean() < 0.01
    assert divergences[:, 1].mean() < at_most * divergences[:, 0].mean()


@pytest.mark.parametrize("assignments", [2_000, 20_000])
def test_after_an_abrupt_change_it_is_as_good_as_the_last_window(assignments):
    ratios, divergences, fresh = compare("regime switch", assignments=assignments)

    assert fresh == 1
    assert (ratios[:, 1] - ratios[:, 0]).mean() < 0.005
    assert divergences[:, 1].mean() < 1.001 * divergences[:, 0].mean()


def test_slow_drift_is_no_abrupt_change():
    assert compare("slow drift", assignments=20_000)[2] == 0


def test_one_layer_that_changes_alone_starts_afresh_alone():
    rng = np.random.default_rng(13)
    shares = expected_shares("stationary", windows=9, layers=23, experts=64, seed=13).copy()
    shares[-1, 7] = rng.permutation(shares[-1, 7])
    counts = count_tokens(shares, 20_000, seed=23)

    forecast = forecast_load(counts, np.ones(23))

    assert np.flatnonzero(forecast.uses_last_window).tolist() == [7]


def test_persistence_tells_drift_from_noise():
    persistence = {}
    for kind in ("stationary", "slow drift"):
        shares = expected_shares(kind, windows=24, layers=4, experts=256, seed=23)
        persistence[kind] = forecast_load(count_tokens(shares, 200_000, seed=13)).persistence.mean()

    assert persistence["stationary"] < 0.15
    assert persistence["slow drift"] > 0.7


def test_it_carries_as_many_tokens_as_the_last_window():
    counts = count_tokens(
        expected_shares("slow drift", windows=5, layers=3, experts=23, seed=1), 1300, seed=2
    )
    counts[-1] *= 3

    forecast = forecast_load(counts)

    assert forecast.tokens.sum(axis=1).tolist() == pytest.approx([3900] * 3)


def test_a_single_window_is_its_own_forecast_with_rare_experts_lifted():
    counts = np.array([[[0, 13, 23, 79]]])

    forecast = forecast_load(counts)

    assert forecast.uses_last_window.tolist() == [True]
    assert forecast.tokens.sum() == pytest.approx(115)
    assert 0 < forecast.tokens[0, 0] < 3
    assert (np.diff(forecast.tokens[0]) > 0).all()


def test_windows_without_tokens_are_passed_over():
    counts = count_tokens(
        expected_shares("stationary", windows=6, layers=2, experts=13, seed=5), 2300, seed=7
    )
    with_gap = np.insert(counts, 3, 0, axis=0)
    with_end = np.concatenate([counts, np.zeros_like(counts[:1])])

    expected = forecast_load(counts).tokens

    assert forecast_load(with_gap).tokens == pytest.approx(expected)
    assert forecast_load(with_end).tokens == pytest.approx(expected)


def test_a_layer_without_any_token_is_forecast_to_have_none():
    counts = np.zeros((3, 2, 5), dtype=int)
    counts[:, 1] = 13

    forecast = forecast_load(counts)

    assert forecast.tokens[0].tolist() == [0] * 5
    assert np.isnan(forecast.persistence[0])
    assert forecast.tokens[1] == pytest.approx(13)


def test_an_unknown_design_effect_raises_no_alarm():
    shares = expected_shares("regime switch", windows=5, layers=2, experts=64, seed=3)
    counts = count_tokens(shares[:-1], 20_000, seed=3)

    forecast = forecast_load(counts, np.array([np.nan, 1.0]))

    assert forecast.uses_last_window.tolist() == [False, True]
    assert np.isfinite(forecast.tokens).all()


def test_no_window_is_no_forecast():
    with pytest.raises(ShapeError, match="one window at least"):
        forecast_load(np.zeros((0, 2, 3), dtype=int))
