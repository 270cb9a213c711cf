"""The wait matrix: who waits, and for whom."""

import numpy as np

from moescope.analysis.dispatch import arrange_waits
from moescope.schemas.attributes import DispatchStage


def test_rows_wait_and_columns_are_waited_for():
    reporters, peers = np.array([0, 0, 2, 2]), np.array([0, 2, 0, 2])
    waits = arrange_waits(DispatchStage.DISPATCH, reporters, peers, np.array([0.0, 2.3, 0.13, 0.0]))
    assert waits.ranks.tolist() == [0, 2]
    assert waits.waited_seconds.tolist() == [2.3, 0.13]
    assert waits.caused_seconds.tolist() == [0.13, 2.3]
    assert waits.most_awaited == 2
    assert waits.per_minute(30.0).tolist() == [[0.0, 4.6], [0.26, 0.0]]


def test_rank_that_reported_nothing_is_unknown_and_still_waited_for():
    waits = arrange_waits(DispatchStage.COMBINE, np.array([0, 0]), np.array([0, 1]), np.array([0.0, 0.79]))
    assert np.isnan(waits.seconds[1]).all()
    assert waits.waited_seconds.tolist() == [0.79, 0.0]
    assert waits.caused_per_minute(60.0).tolist() == [0.0, 0.79]


def test_cycles_are_shown_against_the_mean_and_not_as_time():
    reporters, peers = np.repeat([0, 1, 2], 3), np.tile([0, 1, 2], 3)
    cycles = np.array([0.0, 1, 7, 3, 0, 23, 1, 1, 0])
    waits = arrange_waits(DispatchStage.DISPATCH, reporters, peers, cycles, is_time=False)
    assert waits.of_mean_pair.tolist() == (cycles.reshape(3, 3) / 6).tolist()
    assert waits.caused_of_mean.tolist() == [4 / 12, 2 / 12, 30 / 12]


def test_rank_without_peers_waits_for_nobody_and_divides_by_nothing():
    waits = arrange_waits(
        DispatchStage.DISPATCH, np.array([0]), np.array([0]), np.array([0.0]), is_time=False
    )
    assert waits.of_mean_pair.tolist() == [[0.0]]
    assert waits.caused_of_mean.tolist() == [0.0]
