"""Which pairs of ranks share a node, as far as hosts or the waits themselves say so.

A wait for a rank on another node holds the way over the network: in the published matrix of DeepEP's pull
request 311 it is a thousand times the wait for a neighbour, and nobody is slow for it. So pairs are compared
only with pairs of their own kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis.imbalance import BoolArray
from moescope.schemas.records import FloatArray, IntArray

_LEAST_GAIN: Final = 0.3
"""Nodes are believed in without hosts when they explain this share of the matrix's spread."""
_LEAST_DISTANCE: Final = 1.5
"""And when a wait over the network is this multiple of one within a node."""


@dataclass(frozen=True, slots=True)
class Links:
    """The nodes of the ranks of one EP group.

    Attributes:
        node_of_rank: int64 ``[ranks]``, numbered in the order of the ranks.
        names: of the nodes, as hosts are called; empty strings where they were inferred.
        is_known: False where nodes were read off the waits, or nothing tells them.
    """

    node_of_rank: IntArray
    names: tuple[str, ...]
    is_known: bool

    @property
    def num_nodes(self) -> int:
        """How many nodes there are; 1 where nothing tells them apart."""
        return len(self.names)

    @property
    def same_node(self) -> BoolArray:
        """Whether two ranks share a node: bool ``[ranks, ranks]``, False on the diagonal."""
        same: BoolArray = self.node_of_rank[:, None] == self.node_of_rank[None, :]
        return same & self.apart

    @property
    def other_node(self) -> BoolArray:
        """Whether two ranks are on different nodes: bool ``[ranks, ranks]``."""
        other: BoolArray = self.node_of_rank[:, None] != self.node_of_rank[None, :]
        return other

    @property
    def apart(self) -> BoolArray:
        """Whether two ranks are two: bool ``[ranks, ranks]``."""
        return ~np.eye(len(self.node_of_rank), dtype=np.bool_)


def find_links(hosts: Sequence[str], ranks: IntArray, waits: FloatArray | None) -> Links:
    """Nodes as hosts tell them; otherwise blocks of ranks, where the waits show them; otherwise one node.

    Where every rank has a host of its own, as pods have, hosts tell nothing.

    Args:
        hosts: of each rank, empty where unknown.
        ranks: int64 ``[ranks]``: EP ranks.
        waits: float64 ``[ranks, ranks]``: row waited for column; NaN where unknown.
    """
    if len(hosts) == len(ranks) and all(hosts) and not 1 < len(set(hosts)) == len(ranks):
        names = tuple(dict.fromkeys(hosts))
        return Links(np.array([names.index(host) for host in hosts], dtype=np.int64), names, is_known=True)
    block = None if waits is None else infer_block(waits, ranks)
    nodes = np.zeros(len(ranks), dtype=np.int64) if block is None else ranks // block
    return Links(nodes - nodes.min(initial=0), ("",) * len(np.unique(nodes)), is_known=False)


def infer_block(waits: FloatArray, ranks: IntArray) -> int | None:
    """Ranks of a node, if consecutive blocks of so many explain the waits well; None otherwise.

    Compared is Σ |ln wait − median of its kind| with one kind of pair and with two. Medians are taken over
    the whole matrix: half a kind's cells may be out of the ordinary.
    """
    cells = ~np.eye(len(ranks), dtype=bool) & (np.nan_to_num(waits) > 0)
    if cells.sum() < 3:
        return None
    logs = np.log(np.where(cells, waits, 1.0))
    size = int(ranks.max()) + 1
    best, block = (1 - _LEAST_GAIN) * _spread(logs, cells), None
    for candidate in [n for n in range(2, size // 2 + 1) if size % n == 0]:
        nodes = ranks // candidate
        near = cells & (nodes[:, None] == nodes[None, :])
        far = cells & ~near
        if not near.any() or not far.any():
            continue
        distance = float(np.median(logs[far]) - np.median(logs[near]))
        spread = _spread(logs, near) + _spread(logs, far)
        if distance > np.log(_LEAST_DISTANCE) and spread < best:
            best, block = spread, candidate
    return block


def _spread(logs: FloatArray, cells: BoolArray) -> float:
    return float(np.abs(logs[cells] - np.median(logs[cells])).sum())
