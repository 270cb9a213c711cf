"""Which ranks share a node, and how far what they exchange travels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.rank_io import RankTraffic, TrafficValue
from moescope.schemas.records import FloatArray, IntArray

_MAX_NAMED: Final = 4


@dataclass(frozen=True, slots=True)
class NodeBlock:
    """Neighbouring ranks on one host, from the first to the last of them."""

    host: str
    first_rank: int
    last_rank: int


@dataclass(frozen=True, slots=True)
class Reach:
    """How far what the ranks of one phase exchange travels, as parts of the whole.

    Attributes:
        same_rank: stays where it is.
        same_node: to other ranks of the node; None where hosts are not known.
        other_nodes: over the network; None likewise.
    """

    value: TrafficValue
    same_rank: float
    same_node: float | None
    other_nodes: float | None


def list_node_blocks(ranks: IntArray, host_of_rank: Mapping[int, str]) -> tuple[NodeBlock, ...]:
    """Blocks of neighbouring ranks with one host, in the order of the ranks.

    Empty where a host is unknown, where there is only one, and where every rank has a host of its own, as
    pods have: such names tell nothing of nodes.
    """
    hosts = [host_of_rank.get(rank, "") for rank in ranks.tolist()]
    if not all(hosts) or not 1 < len(set(hosts)) < len(hosts):
        return ()
    blocks: list[NodeBlock] = []
    for rank, host in zip(ranks.tolist(), hosts, strict=True):
        if blocks and blocks[-1].host == host:
            blocks[-1] = NodeBlock(host, blocks[-1].first_rank, rank)
        else:
            blocks.append(NodeBlock(host, rank, rank))
    return tuple(blocks)


def describe_nodes(blocks: Sequence[NodeBlock]) -> str:
    """Which ranks the frames hold; that nodes are not known where there are none."""
    if not blocks:
        return "Which ranks share a node is not known, or all do."
    named = [
        f"{one.host} (ranks {one.first_rank}–{one.last_rank})"
        if one.first_rank < one.last_rank
        else f"{one.host} (rank {one.first_rank})"
        for one in blocks[:_MAX_NAMED]
    ]
    more = len(blocks) - _MAX_NAMED
    return f"Frames are nodes: {', '.join(named)}{f' and {more} more' if more > 0 else ''}."


def measure_reach(traffic: RankTraffic, value: TrafficValue, host_of_rank: Mapping[int, str]) -> Reach | None:
    """Split a matrix by how far it travels; None where nothing did."""
    matrix = traffic.values[value].astype(np.float64)
    total = float(matrix.sum())
    if not total:
        return None
    same_rank = float(matrix.diagonal().sum()) / total
    blocks = list_node_blocks(traffic.ranks, host_of_rank)
    if not blocks:
        return Reach(value, same_rank, None, None)
    hosts = np.array([host_of_rank[rank] for rank in traffic.ranks.tolist()])
    inside = float(matrix[hosts[:, None] == hosts[None, :]].sum()) / total
    return Reach(value, same_rank, inside - same_rank, 1 - inside)


def describe_reach(reach: Reach) -> str:
    """How far it travels, in one sentence."""
    what = reach.value.value
    if reach.same_node is None or reach.other_nodes is None:
        return f"{words.percent(reach.same_rank)} of the {what} stay on their rank."
    return (
        f"Of the {what} {words.percent(reach.same_rank)} stay on their rank, "
        f"{words.percent(reach.same_node)} go to other ranks of the node and "
        f"{words.percent(reach.other_nodes)} to other nodes."
    )


def saved_by_rank(traffic: RankTraffic) -> FloatArray:
    """Part of each rank's assignments that deduplication keeps from travelling: float64 ``[ranks]``.

    1 − tokens / assignments, NaN where a rank sends none.
    """
    tokens, assignments = (
        traffic.values[value].sum(axis=1).astype(np.float64)
        for value in (TrafficValue.TOKENS, TrafficValue.ASSIGNMENTS)
    )
    saved = np.full(len(traffic.ranks), np.nan)
    np.divide(assignments - tokens, assignments, out=saved, where=assignments > 0)
    answer: FloatArray = saved
    return answer
