"""Activated experts: what is estimated from counts is what passes drawn one by one would read."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from moescope.analysis.activated_experts import estimate_activated_experts, read_passes
from moescope.analysis.expert_load import list_scopes, read_window
from moescope.schemas.attributes import Phase
from moescope.schemas.settings import Settings
from tests.analysis.known_telemetry import STEPS, make_telemetry_store
from tests.analysis.known_workloads import KnownFleet

EVEN = np.array([1.0])


def _blocks(ranks, experts, layers=1):
    held = np.arange(experts) * ranks // experts == np.arange(ranks)[:, None]
    return np.repeat(held[:, None, :], layers, axis=1).astype(np.uint16)


def _draw(rng, probabilities, *, passes, tokens, top_k, cluster=1):
    """Assignments ``[experts]`` and the share of passes that read each; a token draws without replacement."""
    counts, read = np.zeros(len(probabilities), dtype=np.int64), np.zeros((passes, len(probabilities)))
    for number in range(passes):
        keys = np.log(probabilities) + rng.gumbel(size=(tokens // cluster, len(probabilities)))
        chosen = np.argpartition(-keys, top_k, axis=1)[:, :top_k]
        counts += cluster * np.bincount(chosen.ravel(), minlength=len(probabilities))
        read[number, np.unique(chosen)] = 1
    return counts, read.mean(axis=0)


@pytest.mark.parametrize(("tokens", "sigma"), [(4, 0.5), (32, 0.5), (32, 1.5), (128, 1.0)])
def test_estimate_is_near_what_independent_tokens_read(tokens, sigma):
    rng = np.random.default_rng([tokens, int(10 * sigma)])
    weights = rng.lognormal(0, sigma, 128)
    counts, read = _draw(rng, weights / weights.sum(), passes=300, tokens=tokens, top_k=8)
    found = estimate_activated_experts(counts[None], _blocks(8, 128), EVEN, 300)
    truth = read.reshape(8, -1).sum(axis=1)
    np.testing.assert_allclose(found.independent[0], truth, rtol=0.05)
    np.testing.assert_allclose(found.ratio, truth.max() / truth.mean(), rtol=0.03)


def test_tokens_of_a_pass_that_choose_alike_read_what_the_second_estimate_says():
    rng = np.random.default_rng(79)
    counts, read = _draw(rng, np.full(128, 1 / 128), passes=300, tokens=32, top_k=8, cluster=4)
    found = estimate_activated_experts(counts[None], _blocks(8, 128), EVEN, 300, cluster=4)
    truth = read.sum()
    assert found.independent.sum() > 1.3 * truth
    assert found.clustered.sum() == pytest.approx(truth, rel=0.05)


def test_rank_with_all_the_tokens_on_one_expert_reads_less_than_the_others():
    counts = np.array([[100_000, 0, 0, 0, 1000, 1000, 1000, 1000]])
    found = estimate_activated_experts(counts, _blocks(2, 8), EVEN, 1000)
    np.testing.assert_allclose(found.independent, [[1, 4 * (1 - np.exp(-1))]])
    assert found.busiest_rank.tolist() == [1]
    assert found.held.tolist() == [[4, 4]]


def test_copies_share_the_tokens_and_both_may_be_read():
    replicas = np.array([[[1]], [[1]]], dtype=np.uint16)
    found = estimate_activated_experts(np.array([[2000]]), replicas, EVEN, 1000)
    np.testing.assert_allclose(found.independent, [[1 - np.exp(-1)] * 2])
    np.testing.assert_allclose(found.assignments_per_read, 2 / (2 * (1 - np.exp(-1))))


# From 30 effective assignments a rank on, where rank loads have a verdict too.
@pytest.mark.parametrize(("mean", "cluster"), [(5, 1), (20, 1), (100, 1), (20, 8), (100, 8), (100, 30)])
@pytest.mark.parametrize("passes", [13, 790])
def test_uniform_router_activates_evenly_net_of_noise(passes, mean, cluster):
    counts = cluster * np.random.default_rng([mean, cluster]).poisson(mean / cluster, (97, 896))
    found = estimate_activated_experts(counts, _blocks(64, 896, 97), np.full(97, float(cluster)), passes)
    assert np.median(found.net_ratio) < 1.25
    assert np.median(found.net_ratio - 1) < 0.7 * np.median(found.ratio - 1)


def test_uneven_ranks_stay_uneven_net_of_noise():
    counts = np.concatenate([np.full(448, 10_000), np.full(448, 100)])[None]
    found = estimate_activated_experts(counts, _blocks(8, 896), EVEN, 10_000)
    assert found.ratio[0] == pytest.approx(2 / (1 + 0.00995 / 0.632), rel=0.01)
    np.testing.assert_allclose(found.net_ratio, found.ratio, rtol=1e-3)


def test_layer_without_tokens_reads_nothing():
    found = estimate_activated_experts(np.zeros((1, 4), dtype=np.int64), _blocks(2, 4), EVEN, 79)
    assert found.independent.tolist() == [[0, 0]]
    assert np.isnan(found.ratio).all()
    assert np.isnan(found.assignments_per_read).all()


@given(
    hnp.arrays(np.int64, (2, 8), elements=st.integers(0, 10**9)),
    st.integers(1, 10**6),
    st.integers(1, 100),
)
def test_rank_reads_no_more_than_it_holds_and_no_more_than_there_are_assignments(counts, passes, cluster):
    found = estimate_activated_experts(counts, _blocks(4, 8, 2), np.ones(2), passes, cluster=cluster)
    slack = 1 + 1e-9
    assert (found.independent <= found.held * slack).all()
    assert (found.independent.sum(axis=1) <= found.assignments_per_pass * slack).all()
    assert (found.clustered <= found.independent * slack).all()


# --- passes from a store ------------------------------------------------------------------------------------

FLEET = KnownFleet(minutes=4, num_layers=2)


@pytest.fixture(scope="module")
def store(either_store):
    return either_store(FLEET, make=lambda path, fleet: make_telemetry_store(path, fleet, [STEPS]))


def test_passes_of_a_group_are_those_of_one_rank(store):
    scope = next(one for one in list_scopes(store) if one.phase is Phase.DECODE)
    window = read_window(store, scope, 240, Settings())
    assert read_passes(store, window, Settings()) == 4 * 13


def test_passes_of_a_group_that_reports_none_are_unknown(store):
    scope = dataclasses.replace(list_scopes(store)[0], ep_group="elsewhere")
    window = dataclasses.replace(read_window(store, list_scopes(store)[0], 240, Settings()), scope=scope)
    assert read_passes(store, window, Settings()) is None


def test_passes_are_unknown_where_their_retention_has_ended(store):
    scope = list_scopes(store)[0]
    window = dataclasses.replace(read_window(store, scope, 240, Settings()), start_ms=scope.end_ms - 10**9)
    assert read_passes(store, window, Settings()) is None
