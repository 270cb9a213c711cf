"""One expert over time."""

import numpy as np

from moescope.analysis.expert_history import trace_expert
from moescope.analysis.expert_load import LayerHistory
from moescope.analysis.placement import PlacementSnapshot
from moescope.schemas.attributes import Phase

TIMES = np.array([0, 600_000], dtype="datetime64[ms]")
NOTHING = np.empty(0, dtype="datetime64[ms]")
# Ten-minute intervals of three experts; on two ranks, expert 1 has a copy on each.
HISTORY = LayerHistory(
    41,
    600,
    {Phase.PREFILL: NOTHING, Phase.DECODE: TIMES},
    {Phase.PREFILL: np.empty((0, 3), dtype=np.int64), Phase.DECODE: np.array([[10, 70, 20], [0, 0, 0]])},
)
PLACEMENT = PlacementSnapshot(0, 2, np.array([0, 1]), np.array([[[1, 1, 0]], [[0, 1, 1]]], dtype=np.uint16))


def test_counts_become_assignments_a_minute():
    series = trace_expert(HISTORY, 1, PLACEMENT, 0).series[Phase.DECODE]
    assert series.per_minute.tolist() == [7, 0]
    assert series.median_per_minute.tolist() == [2, 0]


def test_capacity_share_is_of_one_copy_and_unknown_without_tokens():
    traced = trace_expert(HISTORY, 1, PLACEMENT, 0)
    # 70 over two copies, of an even rank's 50.
    np.testing.assert_array_equal(traced.series[Phase.DECODE].capacity_share, [0.7, np.nan])
    assert traced.copies == 2
    assert traced.ranks.tolist() == [0, 1]


def test_without_placement_there_are_counts_and_no_shares():
    traced = trace_expert(HISTORY, 1, None, 0)
    assert traced.copies == 0
    assert np.isnan(traced.series[Phase.DECODE].capacity_share).all()
    assert traced.series[Phase.DECODE].per_minute.tolist() == [7, 0]


def test_phase_without_windows_is_an_empty_series():
    series = trace_expert(HISTORY, 1, PLACEMENT, 0).series[Phase.PREFILL]
    assert len(series.times) == len(series.per_minute) == len(series.capacity_share) == 0
