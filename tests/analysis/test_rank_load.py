"""How much work each rank has: over all layers, layer by layer, and over time."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moescope.analysis.assessment import assess_load
from moescope.analysis.expert_load import MINUTES, LoadScope
from moescope.analysis.imbalance import compute_rank_loads
from moescope.analysis.load_windows import LoadWindows
from moescope.analysis.placement import PlacementSnapshot
from moescope.analysis.rank_load import (
    choose_history_seconds,
    describe_rank_work,
    follow_rank_loads,
    measure_rank_work,
    read_rank_load_history,
)
from moescope.analysis.store import open_store
from moescope.schemas.attributes import Phase
from moescope.schemas.settings import Settings
from tests.analysis.known_workloads import KnownFleet, assess_fleet, make_store

FLEET = KnownFleet(num_layers=3, num_experts=79, num_ranks=13, hot={(Phase.DECODE, 2, 23): 60.0})


def _windows(tokens):
    tokens = np.asarray(tokens, dtype=np.int64)
    count, layers, experts = tokens.shape
    scope = LoadScope("s", "0", Phase.DECODE, experts, layers, 0, count * 60_000)
    starts = 60_000 * np.arange(count)
    return LoadWindows(scope, MINUTES, starts, 60.0, np.arange(1, layers + 1), tokens)


def _placement(replicas, ranks=None):
    replicas = np.asarray(replicas, dtype=np.uint16)
    ranks = np.arange(len(replicas)) if ranks is None else np.array(ranks)
    return PlacementSnapshot(0, int(ranks.max()) + 1, ranks, replicas)


def test_rank_with_the_hot_expert_has_most_in_its_layer():
    work = measure_rank_work(assess_fleet(FLEET, Phase.DECODE), Settings())
    rank = 23 * 13 // 79
    position = work.position(rank)
    assert work.layers[work.worst_row[position]] == 2
    assert work.worst_of_mean[position] == work.of_layer_mean.max()
    assert work.worst_rows_of(position, 1).tolist() == [1]
    assert work.position(79) is None


def test_work_over_all_layers_is_the_mean_of_layers_with_as_many_tokens():
    work = measure_rank_work(assess_fleet(FLEET, Phase.DECODE), Settings())
    np.testing.assert_allclose(work.of_mean, work.of_layer_mean.mean(axis=0))
    assert work.of_mean.mean() == pytest.approx(1)


def test_sentence_names_the_busiest_rank_and_the_worst_layer():
    said = describe_rank_work(measure_rank_work(assess_fleet(FLEET, Phase.DECODE), Settings()))
    assert "rank 3 has most" in said
    assert "in layer 2 rank 3 has" in said
    assert "net of noise" in said


def test_uniform_routing_is_said_to_be_chance():
    fleet = dataclasses.replace(FLEET, num_experts=78, hot={})
    said = describe_rank_work(measure_rank_work(assess_fleet(fleet, Phase.DECODE), Settings()))
    assert "no more than chance makes of it" in said


def test_lone_rank_has_all_the_work():
    work = measure_rank_work(assess_fleet(KnownFleet(num_ranks=1), Phase.DECODE), Settings())
    assert describe_rank_work(work) == "One rank has all the work."


def test_window_without_tokens_says_nothing():
    work = measure_rank_work(assess_fleet(KnownFleet(tokens_per_minute=0), Phase.DECODE), Settings())
    assert describe_rank_work(work) == ""
    assert np.isnan(work.of_mean).all()


def test_without_a_placement_nothing_is_known():
    window = assess_fleet(FLEET, Phase.DECODE).window
    assert measure_rank_work(assess_load(window, None, Settings()), Settings()) is None


def test_placement_of_its_time_counts_in_each_window():
    tokens = [[[13, 23]], [[13, 23]], [[0, 0]]]
    straight, swapped = _placement([[[1, 0]], [[0, 1]]]), _placement([[[0, 1]], [[1, 0]]])
    history = follow_rank_loads(_windows(tokens), np.array([1]), [straight, swapped, swapped])
    np.testing.assert_allclose(history.of_mean[:2], [[13 / 18, 23 / 18], [23 / 18, 13 / 18]])
    assert np.isnan(history.of_mean[2]).all()


def test_rank_that_joined_later_is_unknown_before():
    tokens = [[[13, 23]], [[13, 23]]]
    alone, both = _placement([[[1, 1]]]), _placement([[[1, 0]], [[0, 1]]])
    history = follow_rank_loads(_windows(tokens), np.array([1]), [alone, both])
    assert history.ranks.tolist() == [0, 1]
    assert history.of_mean[0].tolist() == [1.0, pytest.approx(np.nan, nan_ok=True)]


def test_without_any_placement_there_are_no_ranks():
    history = follow_rank_loads(_windows([[[13, 23]]]), np.array([1]), [None])
    assert history.of_mean.shape == (1, 0)


@given(st.integers(0, 2**32 - 1))
def test_sums_are_those_of_every_layers_rank_loads(seed):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 79, (3, 5, 13))
    replicas = rng.integers(0, 3, (7, 5, 13))
    history = follow_rank_loads(_windows(tokens), np.arange(1, 6), [_placement(replicas)] * 3)
    for window in range(3):
        sums = compute_rank_loads(tokens[window], replicas).sum(axis=0)
        if sums.mean() > 0:
            np.testing.assert_allclose(history.of_mean[window], sums / sums.mean())


@pytest.mark.parametrize(
    ("window", "step"),
    [(300, 60), (900, 60), (3_600, 120), (21_600, 720), (86_400, 3_000), (604_800, 21_600)],
)
def test_history_has_about_thirty_windows_of_whole_intervals(window, step):
    assert choose_history_seconds(window) == step


def test_history_is_read_with_its_placement(tmp_path):
    fleet = dataclasses.replace(FLEET, minutes=7)
    store = open_store(make_store(tmp_path / "store", fleet))
    try:
        from moescope.analysis.assessment import read_assessment
        from moescope.analysis.expert_load import list_scopes

        scope = next(one for one in list_scopes(store) if one.phase is Phase.DECODE)
        assessment = read_assessment(store, scope, 900, Settings())
        history = read_rank_load_history(store, assessment, Settings())
    finally:
        store.close()
    assert history.of_mean.shape == (7, 13)
    work = measure_rank_work(assessment, Settings())
    np.testing.assert_allclose(history.of_mean.mean(axis=0), work.of_mean)
