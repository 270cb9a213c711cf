"""Rank × rank: bytes, deduplicated tokens, assignments."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moescope.analysis.rank_io import (
    TrafficValue,
    arrange_traffic,
    find_busiest_pair,
    leaves_rank,
    share_that_leaves_node,
)
from moescope.schemas.attributes import Phase


def _traffic(sent, tokens=None, assignments=None, ranks=None, seconds=10.0):
    sent = np.array(sent, dtype=np.int64)
    ranks = np.arange(len(sent)) if ranks is None else np.array(ranks)
    rows, columns = (grid.ravel() for grid in np.meshgrid(ranks, ranks, indexing="ij"))
    zeros = np.zeros_like(sent)
    values = {
        TrafficValue.BYTES_SENT: sent.ravel(),
        TrafficValue.BYTES_RECEIVED: sent.T.ravel(),
        TrafficValue.TOKENS: zeros.ravel() if tokens is None else np.array(tokens).ravel(),
        TrafficValue.ASSIGNMENTS: zeros.ravel() if assignments is None else np.array(assignments).ravel(),
    }
    return arrange_traffic(Phase.DECODE, rows, columns, values, seconds)


SENT = [[1, 13, 23], [7, 3, 79], [5, 11, 2]]


def test_rows_are_who_reports_and_columns_are_peers():
    traffic = _traffic(SENT, ranks=[0, 2, 5])
    assert traffic.ranks.tolist() == [0, 2, 5]
    assert traffic.values[TrafficValue.BYTES_SENT].tolist() == SENT
    assert traffic.row_sums_per_second(TrafficValue.BYTES_SENT) == pytest.approx([3.7, 8.9, 1.8])
    assert traffic.column_sums_per_second(TrafficValue.BYTES_SENT) == pytest.approx([1.3, 2.7, 10.4])


def test_what_one_side_sent_the_other_received():
    traffic = _traffic(SENT)
    np.testing.assert_array_equal(
        traffic.values[TrafficValue.BYTES_SENT], traffic.values[TrafficValue.BYTES_RECEIVED].T
    )


def test_silent_rank_is_unknown_not_zero():
    zero = np.array([0, 0], dtype=np.int64)
    values = dict.fromkeys(TrafficValue, np.array([13, 23], dtype=np.int64))
    traffic = arrange_traffic(Phase.DECODE, zero, np.array([0, 1]), values, 1.0)
    assert traffic.reporting.tolist() == [True, False]
    assert np.isnan(traffic.per_second(TrafficValue.TOKENS)[1]).all()
    assert traffic.num_reporting == 1


def test_dedup_factor_is_assignments_by_tokens():
    traffic = _traffic(SENT, tokens=[[23] * 3] * 3, assignments=[[79] * 3] * 3)
    assert traffic.dedup_factor == 79 / 23
    assert traffic.bytes_per_token == 144 / 207


def test_without_tokens_there_is_no_dedup_factor():
    assert _traffic(SENT).dedup_factor is None
    assert _traffic(SENT).bytes_per_token is None


def test_busiest_pair_lies_off_the_diagonal():
    sent = np.array(SENT) + np.diag([1000, 1000, 1000])
    pair = find_busiest_pair(_traffic(sent), TrafficValue.BYTES_SENT)
    assert (pair.rank, pair.peer, pair.value) == (1, 2, 79)
    assert pair.times_mean == pytest.approx(79 / ((13 + 23 + 7 + 79 + 5 + 11) / 6))


def test_lone_rank_has_no_pair():
    assert find_busiest_pair(_traffic([[13]]), TrafficValue.BYTES_SENT) is None


def test_share_that_leaves_the_node_needs_every_host():
    traffic = _traffic(SENT)
    hosts = {0: "a", 1: "a", 2: "b"}
    assert share_that_leaves_node(traffic, TrafficValue.BYTES_SENT, hosts) == (23 + 79 + 5 + 11) / 144
    assert share_that_leaves_node(traffic, TrafficValue.BYTES_SENT, {0: "a", 1: "a"}) is None


def test_one_host_leaves_nothing():
    assert share_that_leaves_node(_traffic(SENT), TrafficValue.BYTES_SENT, dict.fromkeys(range(3), "a")) == 0


@given(st.lists(st.integers(0, 10**12), min_size=9, max_size=9))
def test_what_leaves_a_rank_is_a_share(cells):
    share = leaves_rank(_traffic(np.array(cells).reshape(3, 3)), TrafficValue.BYTES_SENT)
    known = share[~np.isnan(share)]
    assert ((known >= 0) & (known <= 1)).all()
