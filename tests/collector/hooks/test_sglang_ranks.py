import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moescope.collector.hooks.sglang_ranks import Ranks

ALONE = Ranks(
    tp_rank=0,
    pp_rank=0,
    pp_size=1,
    attn_tp_rank=0,
    attn_tp_size=1,
    attn_dp_rank=0,
    attn_dp_size=1,
    ep_rank=0,
    ep_size=1,
    moe_tp_rank=0,
    moe_tp_size=1,
    moe_dp_rank=0,
    moe_dp_size=1,
)


def ranks(**changes):
    return dataclasses.replace(ALONE, **changes)


def ids(rows):
    return np.arange(rows)[:, None]


@given(st.lists(st.integers(0, 23), min_size=2, max_size=8))
def test_ranks_that_see_each_others_rows_count_every_row_once(rows_per_rank):
    gathered = ids(sum(rows_per_rank))
    everybody = [ranks(attn_dp_rank=r, attn_dp_size=len(rows_per_rank)) for r in range(len(rows_per_rank))]

    counted = np.concatenate([rank.own_rows(gathered, rows_per_rank) for rank in everybody])

    assert counted.tolist() == gathered.tolist()


def test_rows_that_fit_nobody_are_not_counted(caplog):
    rank = ranks(attn_dp_rank=1, attn_dp_size=2)

    assert rank.own_rows(ids(7), [13, 23]) is None
    assert rank.own_rows(ids(7), None) is None
    assert "7 routed rows are neither" in caplog.text
    assert len(rank.own_rows(ids(23), [13, 23])) == 23


def test_of_the_ranks_that_route_the_same_rows_the_first_counts():
    same = [ranks(tp_rank=r, attn_tp_rank=r, attn_tp_size=4, ep_rank=r, ep_size=4) for r in range(4)]

    assert [rank.counts for rank in same] == [True, False, False, False]
    assert [rank.reports for rank in same] == [True] * 4  # the others hold experts
    assert [rank.shard for rank in same] == [None] * 4


def test_with_an_all_to_all_every_rank_counts_a_slice_of_its_own():
    own = [
        ranks(tp_rank=r, attn_tp_rank=r % 2, attn_tp_size=2, ep_rank=r, ep_size=4, routes_own_rows=True)
        for r in range(4)
    ]

    assert all(rank.counts for rank in own)
    assert [rank.shard for rank in own] == [0, 1, 0, 1]
    assert not any(rank.is_gathered for rank in own)


def test_tensor_parallel_copies_of_a_rank_say_nothing():
    copies = [ranks(attn_tp_rank=r, attn_tp_size=4, moe_tp_rank=r, moe_tp_size=4) for r in range(4)]

    assert [rank.reports for rank in copies] == [True, False, False, False]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "g"),
        ({"replica": 1, "replicas": 2}, "g-dp1"),
        ({"pp_rank": 1, "pp_size": 2, "ep_rank": 3, "ep_size": 4}, "g-pp1"),
        ({"ep_rank": 3, "ep_size": 4, "moe_tp_rank": 1, "moe_tp_size": 2}, "g-moe-tp1"),
        ({"attn_dp_rank": 1, "attn_dp_size": 4, "ep_rank": 1, "ep_size": 4}, "g"),
        ({"attn_dp_rank": 1, "attn_dp_size": 4}, "g-attn-dp1"),
    ],
)
def test_groups_beside_each_other_have_names_of_their_own(changes, name):
    assert ranks(**changes).grid("g").ep_group == name
