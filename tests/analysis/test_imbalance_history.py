"""Which layers stay imbalanced, and since when: uniform routers never, placements as they were."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moescope.analysis.expert_load import MINUTES, LoadScope
from moescope.analysis.imbalance_history import ImbalanceHistory, find_steps, judge_windows
from moescope.analysis.load_windows import LoadWindows
from moescope.analysis.placement import PlacementSnapshot
from moescope.schemas.attributes import Phase
from moescope.schemas.settings import Settings

SCOPE = LoadScope("s", "0", Phase.DECODE, 8, 3, 0, 10**6)
EVEN = np.full(8, 1000)
HOT = np.array([9000, *[1000] * 7])
NAN = np.nan


def _windows(tokens, layers=(1, 2, 3)):
    tokens = np.asarray(tokens)
    starts = 60_000 * np.arange(len(tokens))
    return LoadWindows(SCOPE, MINUTES, starts, 60.0, np.asarray(layers), tokens)


def _placement(ranks=4, experts=8, layers=3, shift=0):
    held = (np.arange(experts) + shift) % experts * ranks // experts == np.arange(ranks)[:, None]
    replicas = np.repeat(held[:, None, :], layers, axis=1).astype(np.uint16)
    return PlacementSnapshot(0, ranks, np.arange(ranks), replicas)


def _judge(tokens, *, placements=None, layers=(1, 2, 3), effect=1.0, **changes):
    windows = _windows(tokens)
    placements = [_placement()] * len(tokens) if placements is None else placements
    return judge_windows(
        windows, np.asarray(layers), placements, np.full(len(layers), effect), Settings(**changes)
    )


def _history(net, imbalanced):
    net = np.asarray(net, dtype=float)[:, None]
    return ImbalanceHistory(
        60_000 * np.arange(len(net)), 60.0, net, np.asarray(imbalanced, dtype=bool)[:, None]
    )


def test_layer_that_became_imbalanced_says_since_when():
    history = _judge([[EVEN, EVEN, HOT], [EVEN, HOT, HOT], [EVEN, HOT, HOT]])
    assert history.is_imbalanced.tolist() == [[False, False, True], *[[False, True, True]] * 2]
    assert history.since_ms.tolist() == [-1, 60_000, 0]
    assert history.is_lasting.tolist() == [False, False, True]
    assert history.num_imbalanced.tolist() == [0, 2, 3]


def test_layer_that_recovered_is_imbalanced_since_never():
    assert _judge([[HOT, HOT, HOT], [EVEN, HOT, EVEN]]).since_ms.tolist() == [-1, 0, -1]


def test_window_without_a_verdict_neither_ends_nor_begins_an_imbalance():
    assert _history([NAN, 3, NAN, 3, NAN], [0, 1, 0, 1, 0]).since_ms.tolist() == [60_000]
    assert _history([3, 1, NAN, 3], [1, 0, 0, 1]).since_ms.tolist() == [180_000]
    assert _history([NAN, NAN], [0, 0]).since_ms.tolist() == [-1]


def test_single_window_is_not_lasting():
    assert not _history([NAN, 3], [0, 1]).is_lasting.any()


def test_each_window_is_judged_with_the_placement_of_its_time():
    # Experts 0 and 1 share rank 0 at first, and are parted in the second window.
    pair = np.array([[4000, 4000, *[500] * 6]] * 3)
    history = _judge([pair, pair], placements=[_placement(), _placement(shift=1)])
    assert history.is_imbalanced[:, 0].tolist() == [True, False]


def test_window_without_a_placement_or_with_too_few_tokens_has_no_verdict():
    history = _judge([[HOT] * 3, [HOT // 1000] * 3], placements=[None, _placement()])
    assert np.isnan(history.net_ratio).all()
    assert history.num_judged.tolist() == [0, 0, 0]


def test_layers_are_those_that_are_asked_for():
    history = _judge([[EVEN, HOT, EVEN]], layers=(2, 3, 7), placements=[_placement()])
    assert history.is_imbalanced[0].tolist() == [True, False, False]
    assert np.isnan(history.net_ratio[0, 2])


@pytest.mark.parametrize("cluster", [1, 8, 30])
@pytest.mark.parametrize("mean", [1, 5, 20, 100])
def test_uniform_router_is_never_imbalanced_in_any_window(mean, cluster):
    counts = cluster * np.random.default_rng([mean, cluster]).poisson(mean / cluster, (12, 92, 896))
    windows = LoadWindows(SCOPE, MINUTES, np.arange(12), 60.0, np.arange(92), counts)
    placements = [_placement(64, 896, 92)] * 12
    history = judge_windows(windows, np.arange(92), placements, np.full(92, float(cluster)), Settings())
    assert not history.is_imbalanced.any()


# --- placements over time -----------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 2), min_size=1, max_size=12))
def test_changes_are_found_with_few_reads_where_there_are_few(kinds):
    kinds = sorted(kinds)
    snapshots = [_placement(shift=kind) for kind in kinds]
    reads = []
    found = find_steps(len(kinds), snapshots[-1], lambda at: reads.append(at) or snapshots[at])
    assert [one.ranks_of(0, 0).tolist() for one in found] == [
        one.ranks_of(0, 0).tolist() for one in snapshots
    ]
    assert len(reads) == len(set(reads)) <= 1 + 4 * (len(set(kinds)) - 1)


def test_time_before_the_first_placement_has_none():
    placement = _placement()
    found = find_steps(4, placement, lambda at: placement if at >= 2 else None)
    assert [one is None for one in found] == [True, True, False, False]
