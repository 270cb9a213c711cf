"""The parts of the search for stragglers: medians, nodes, times at equal load, persistence."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from moescope.analysis.medians import median_of_known, quantile_of_known
from moescope.analysis.straggler_links import find_links, infer_block
from moescope.analysis.straggler_persistence import lasts
from moescope.analysis.straggler_times import explained_by_load, time_at_load
from moescope.analysis.straggler_waits import measure_lateness

VALUES = st.one_of(st.floats(-1e9, 1e9), st.just(np.nan))


@given(arrays.arrays(np.float64, st.tuples(st.integers(1, 7), st.integers(1, 7)), elements=VALUES))
def test_median_is_that_of_what_is_known(values):
    for axis in (0, 1):
        expected = [
            np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan
            for row in (values.T if axis == 0 else values)
        ]
        np.testing.assert_allclose(median_of_known(values, axis), expected, rtol=1e-12, atol=1e-6)


def test_quantile_is_interpolated_and_of_nothing_is_unknown():
    values = np.array([[13.0, np.nan], [23.0, np.nan], [79.0, np.nan]])
    np.testing.assert_allclose(quantile_of_known(values, 0.75, 0), [51.0, np.nan])
    assert median_of_known(np.empty((0, 3)), 0).tolist() == pytest.approx([np.nan] * 3, nan_ok=True)


def _two_nodes(ranks=16, per_node=8, far=600_000.0):
    node = np.arange(ranks) // per_node
    waits = np.where(node[:, None] == node[None, :], 450.0, far)
    np.fill_diagonal(waits, 0.0)
    return waits


@pytest.mark.parametrize("per_node", [2, 4, 8])
def test_nodes_are_read_off_the_waits_where_hosts_are_not_known(per_node):
    assert infer_block(_two_nodes(per_node=per_node), np.arange(16)) == per_node
    links = find_links(("",) * 16, np.arange(16), _two_nodes(per_node=per_node))
    assert (links.num_nodes, links.is_known) == (16 // per_node, False)


def test_rows_of_one_node_show_both_nodes():
    waits = _two_nodes()
    waits[7:] = np.nan
    assert infer_block(waits, np.arange(16)) == 8


def test_ranks_that_are_equally_far_apart_are_one_node():
    waits = 450.0 * np.random.default_rng(79).lognormal(0, 0.5, (16, 16))
    assert infer_block(waits, np.arange(16)) is None
    assert find_links((), np.arange(16), waits).num_nodes == 1


def test_hosts_of_pods_that_all_differ_tell_nothing():
    hosts = tuple(f"pod-{rank}" for rank in range(16))
    assert not find_links(hosts, np.arange(16), _two_nodes()).is_known
    assert find_links(("a", "a", "b"), np.arange(3), None).node_of_rank.tolist() == [0, 0, 1]
    assert find_links(("a", "", "b"), np.arange(3), None).num_nodes == 1, "one is not known"


def _layers(slow=1.0, *, loaded=1.0, seed=0, layers=23, ranks=8):
    rng = np.random.default_rng(seed)
    loads = 1_000 * rng.lognormal(0, 0.3, (layers, ranks))
    loads[:, 5] *= loaded
    seconds = (3e-4 + 3e-7 * loads) * rng.lognormal(0, 0.01, loads.shape)
    seconds[:, 5] *= slow
    return seconds, loads


@pytest.mark.parametrize("loaded", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("slow", [1.0, 1.5, 2.5])
def test_time_at_equal_load_does_not_mistake_load_for_slowness(slow, loaded):
    for seed in range(5):
        times = time_at_load(*_layers(slow, loaded=loaded, seed=seed), 5)
        # Beyond the largest load of the others, time is granted in full proportion to load.
        assert times < 1.2 if slow == 1.0 else 0.6 * slow < times < 1.15 * slow


def test_time_at_equal_load_survives_three_slow_ranks_of_eight_and_missing_ones():
    seconds, loads = _layers(2.5)
    seconds[:, 1:3] *= 2.5
    seconds[:, 7] = np.nan
    assert time_at_load(seconds, loads, 5) == pytest.approx(2.5, rel=0.1)
    assert time_at_load(seconds, loads, 3) < 1.1, "half of the others are slow"
    assert np.isnan(time_at_load(seconds, loads, 7))
    assert np.isnan(time_at_load(seconds[:, :2], loads[:, :2], 0)), "one other rank is no majority"


def _waits_of(seconds):
    waits = np.maximum(seconds[:, None, :] - seconds[:, :, None], 0).sum(axis=0)
    np.fill_diagonal(waits, np.nan)
    return waits


def test_waits_for_a_loaded_rank_are_explained_by_its_load_and_those_for_a_slow_one_are_not():
    for seed in range(5):
        seconds, loads = _layers(loaded=3.0, seed=seed)
        assert explained_by_load(_waits_of(seconds), loads, 5) > 0.8
        seconds, loads = _layers(2.5, seed=seed)
        assert explained_by_load(_waits_of(seconds), loads, 5) < 0.2


def test_equal_loads_explain_nothing():
    seconds, loads = _layers()
    assert np.isnan(explained_by_load(_waits_of(seconds), np.full_like(loads, 79.0), 5))


def test_mean_of_a_third_of_slow_ranks_hides_them_and_the_median_does_not():
    waits = np.full((1, 8, 8), 10.0)
    waits[:, :, :3] = 100.0
    waits[:, :3] = 5.0
    links = find_links(("a",) * 8, np.arange(8), None)
    lateness = measure_lateness(waits, links, 3.0)
    assert (lateness.ratio[0, :3] >= 10).all()
    assert (lateness.ratio[0, 3:] <= 1).all()
    columns = waits[0].mean(axis=0)
    assert columns.max() / columns.mean() < 3, "DeepXTrace's rule"


def test_column_that_nobody_waits_for_is_not_known():
    waits = np.full((1, 4, 4), 10.0)
    waits[:, :, 3] = 0.0
    waits[:, 3] = np.nan
    lateness = measure_lateness(waits, find_links((), np.arange(4), None), 3.0)
    assert np.isnan(lateness.ratio[0, 3])
    np.testing.assert_array_equal(lateness.ratio[0, :3], 1.0)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        *(("....###", True), ("###....", False), ("..###..", False)),
        *(("..###.#", True), ("..##.#.", True), ("......#", False)),
    ],
)
def test_three_of_the_newest_five_and_one_of_the_newest_two(seen, expected):
    late = np.array([mark == "#" for mark in seen])
    assert lasts(late, np.ones(len(seen), dtype=bool), 3) is expected


def test_windows_of_which_nothing_is_known_do_not_count():
    late = np.array([True, False, True, False, True, False, False])
    assert lasts(late, late, 3)
    assert not lasts(late, np.ones(7, dtype=bool), 3)
