"""Which ranks share a node, and how far what they exchange travels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moescope.analysis.rank_io import TrafficValue, arrange_traffic, share_that_leaves_node
from moescope.analysis.rank_nodes import (
    NodeBlock,
    describe_nodes,
    describe_reach,
    list_node_blocks,
    measure_reach,
    saved_by_rank,
)
from moescope.schemas.attributes import Phase

TOKENS = TrafficValue.TOKENS


def _traffic(tokens, assignments=None):
    tokens = np.array(tokens, dtype=np.int64)
    ranks = np.arange(len(tokens))
    rows, columns = (grid.ravel() for grid in np.meshgrid(ranks, ranks, indexing="ij"))
    of_assignments = tokens if assignments is None else np.array(assignments, dtype=np.int64)
    values = {
        value: of_assignments.ravel() if value is TrafficValue.ASSIGNMENTS else tokens.ravel()
        for value in TrafficValue
    }
    return arrange_traffic(Phase.DECODE, rows, columns, values, 1.0)


def test_neighbours_on_one_host_are_a_block():
    hosts = {0: "n0", 1: "n0", 2: "n1", 5: "n1", 7: "n0"}
    assert list_node_blocks(np.array([0, 1, 2, 5, 7]), hosts) == (
        NodeBlock("n0", 0, 1), NodeBlock("n1", 2, 5), NodeBlock("n0", 7, 7),
    )  # fmt: skip


def test_blocks_are_named_with_their_ranks():
    blocks = (NodeBlock("n0", 0, 1), NodeBlock("n1", 2, 2))
    assert describe_nodes(blocks) == "Frames are nodes: n0 (ranks 0–1), n1 (rank 2)."
    assert describe_nodes(blocks * 3).endswith("n1 (rank 2) and 2 more.")
    assert describe_nodes(()) == "Which ranks share a node is not known, or all do."


@pytest.mark.parametrize(
    "hosts",
    [{0: "n0", 1: "n0", 2: "n0"}, {0: "pod-0", 1: "pod-1", 2: "pod-2"}, {0: "n0", 1: "n0"}, {}],
    ids=["one node", "a pod each", "one unknown", "none known"],
)
def test_hosts_that_tell_nothing_make_no_blocks(hosts):
    assert list_node_blocks(np.arange(3), hosts) == ()


def test_what_travels_is_split_by_how_far():
    hosts = {0: "n0", 1: "n0", 2: "n1"}
    reach = measure_reach(_traffic([[13, 7, 0], [0, 0, 23], [0, 0, 57]]), TOKENS, hosts)
    assert (reach.same_rank, reach.same_node, reach.other_nodes) == pytest.approx((0.7, 0.07, 0.23))
    assert describe_reach(reach) == (
        "Of the tokens 70 % stay on their rank, 7.0 % go to other ranks of the node and 23 % to other nodes."
    )


def test_without_hosts_only_what_stays_is_known():
    reach = measure_reach(_traffic([[13, 7], [57, 23]]), TOKENS, {})
    assert describe_reach(reach) == "36 % of the tokens stay on their rank."


def test_nothing_travels_nowhere():
    assert measure_reach(_traffic([[0, 0], [0, 0]]), TOKENS, {}) is None


def test_saved_is_what_is_not_sent_twice():
    traffic = _traffic([[23, 0], [0, 0]], assignments=[[79, 13], [0, 0]])
    assert saved_by_rank(traffic) == pytest.approx([1 - 23 / 92, np.nan], nan_ok=True)


@given(st.integers(0, 2**32 - 1))
def test_parts_are_the_whole_and_agree_with_what_leaves_the_node(seed):
    rng = np.random.default_rng(seed)
    traffic = _traffic(rng.integers(1, 79, (7, 7)))
    hosts = {rank: f"n{rank // 3}" for rank in range(7)}
    reach = measure_reach(traffic, TOKENS, hosts)
    assert reach.same_rank + reach.same_node + reach.other_nodes == pytest.approx(1)
    assert reach.other_nodes == pytest.approx(share_that_leaves_node(traffic, TOKENS, hosts))
