"""Slow ways between ranks in time: one pair, one rank's way to other nodes, or a whole node that is late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from moescope.analysis.imbalance import BoolArray
from moescope.analysis.medians import median_of_known
from moescope.analysis.straggler_evidence import StragglerRules
from moescope.analysis.straggler_links import Links
from moescope.analysis.straggler_persistence import lasts
from moescope.analysis.straggler_waits import Lateness
from moescope.schemas.records import FloatArray


class PathKind(StrEnum):
    """Which way is slow."""

    PAIR = "pair"
    OUT_OF_NODE = "out of its node"
    INTO_NODE = "into its node"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class Path:
    """A way that is slow in one stage.

    Attributes:
        ranks: positions on the rank axis: of a pair the sender, then who waits; of a node all of its ranks.
        node: number of the node, where it is one.
        ratio: float64 ``[windows]``: times that the wait is as long as usual over such a way.
        lost: float64 ``[windows]``: what those who wait lost together, in the unit of the waits.
        is_slow, is_known: bool ``[windows]``.
    """

    kind: PathKind
    ranks: tuple[int, ...]
    node: int | None
    ratio: FloatArray
    lost: FloatArray
    is_slow: BoolArray
    is_known: BoolArray


def find_slow_nodes(
    one: Lateness, links: Links, rules: StragglerRules, least_lost: FloatArray
) -> Iterator[Path]:
    """Nodes for which most of the others wait, though their ranks do not wait for one another.

    Compared is what node a waits for node b with what b waits for a; where b's rows are missing, with what a
    waits for the others. With the rows of one node out of two nothing can be said: that its peer is far is no
    fault.
    """
    numbers = np.unique(links.node_of_rank)
    blocks = _blocks(one, links, numbers)
    for position, node in enumerate(numbers):
        members = links.node_of_rank == node
        if members.sum() < 2 or len(numbers) < 2:
            continue
        ratio = _times_later(blocks, position)
        is_known = np.isfinite(ratio)
        lost = np.nansum(np.where(~members[None, :, None] & members[None, None, :], one.beyond, 0), (1, 2))
        outside = int((~members).sum())
        is_slow = (np.nan_to_num(ratio) >= rules.wait_ratio) & ~_are_late(one, members, rules, least_lost)
        is_slow &= lost >= least_lost * outside * members.sum()
        if lasts(is_slow, is_known, rules.windows):
            ranks = tuple(np.flatnonzero(members).tolist())
            yield Path(PathKind.NODE, ranks, int(node), ratio, lost, is_slow, is_known)


def _are_late(one: Lateness, members: BoolArray, rules: StragglerRules, least_lost: FloatArray) -> BoolArray:
    """Whether any of a node's ranks is late for a quarter of the others there: bool ``[windows]``."""
    inside = one.beyond[:, members][:, :, members].copy()
    lost = np.percentile(np.nan_to_num(inside), 75, axis=1)
    late = (np.nan_to_num(one.within[:, members]) >= rules.wait_ratio) & (lost >= least_lost[:, None])
    return np.asarray(late.any(axis=1))


def find_slow_ways(
    one: Lateness, links: Links, rules: StragglerRules, least_lost: FloatArray, late: BoolArray
) -> Iterator[Path]:
    """Ranks whose way to other nodes is slow while their neighbours get along with them well.

    Args:
        one: how late the ranks were.
        links: their nodes.
        rules: from when on.
        least_lost: float64 ``[windows]``: what each rank that waits must lose, in the unit of the waits.
        late: bool ``[ranks]``: named already.
    """
    numbers, usual = links.other_node.sum(axis=0), rules.wait_ratio
    for kind, near, far, axis in (
        (PathKind.OUT_OF_NODE, one.near, one.far, 1),
        (PathKind.INTO_NODE, one.row_near, one.row_far, 2),
    ):
        known = np.isfinite(near) & np.isfinite(far)
        lost = np.nansum(np.where(links.other_node[None], one.beyond, 0), axis=axis)
        slow = known & (np.nan_to_num(far) >= usual) & (np.nan_to_num(far) >= usual * np.nan_to_num(near))
        slow &= lost >= least_lost[:, None] * np.maximum(numbers, 1)
        for rank in np.flatnonzero(~late):
            if lasts(slow[:, rank], known[:, rank], rules.windows):
                found = kind, (int(rank),), None
                yield Path(*found, far[:, rank], lost[:, rank], slow[:, rank], known[:, rank])


def find_slow_pairs(
    one: Lateness, rules: StragglerRules, least_lost: FloatArray, late: BoolArray
) -> Iterator[Path]:
    """Pairs that wait longer than both do with their other peers; ``late`` ranks are named already."""
    column = np.fmax(np.fmax(one.near, one.far), 1.0)[:, None, :]
    row = np.fmax(np.fmax(one.row_near, one.row_far), 1.0)[:, :, None]
    ratio = one.cells / np.maximum(column, row)
    known = np.isfinite(ratio)
    slow = known & (np.nan_to_num(ratio) >= rules.link_ratio)
    slow &= np.nan_to_num(one.beyond) >= least_lost[:, None, None]
    slow[:, :, late] = False
    for waiting, sender in np.argwhere(slow.any(axis=0)):
        cell = np.s_[:, waiting, sender]
        if lasts(slow[cell], known[cell], rules.windows):
            found = PathKind.PAIR, (int(sender), int(waiting)), None
            yield Path(*found, ratio[cell], one.beyond[cell], slow[cell], known[cell])


def _blocks(one: Lateness, links: Links, numbers: np.ndarray) -> FloatArray:
    """Median cell of what each node waits for each other: float64 ``[windows, nodes, nodes]``."""
    blocks = np.full((len(one.cells), len(numbers), len(numbers)), np.nan)
    for a, row in enumerate(numbers):
        for b, column in enumerate(numbers):
            if a == b:
                continue
            cells = one.cells[:, links.node_of_rank == row][:, :, links.node_of_rank == column]
            blocks[:, a, b] = median_of_known(cells.reshape(len(cells), -1), axis=1)
    return blocks


def _times_later(blocks: FloatArray, node: int) -> FloatArray:
    """How many times longer the median other node waits for a node than is usual: float64 ``[windows]``."""
    ratios = []
    for other in range(blocks.shape[1]):
        if other == node:
            continue
        waits, answer = blocks[:, other, node], blocks[:, node, other]
        rest = np.delete(blocks[:, other], [node, other], axis=1)
        usual = np.where(np.isfinite(answer), answer, median_of_known(rest, axis=1))
        ratios.append(np.divide(waits, usual, out=np.full(len(waits), np.nan), where=usual > 0))
    return median_of_known(np.stack(ratios, axis=1), axis=1)
