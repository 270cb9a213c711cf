"""Who sends how much to whom: bytes, deduplicated tokens, and assignments, rank by rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from moescope.analysis.frozen import lock, locked_int64
from moescope.analysis.span import Span
from moescope.analysis.store import Store, column_as_array
from moescope.schemas.attributes import Phase
from moescope.schemas.records import FloatArray, IntArray


class TrafficValue(StrEnum):
    """What a rank × rank matrix shows; rows report, columns are their peers."""

    BYTES_SENT = "bytes sent"
    BYTES_RECEIVED = "bytes received"
    TOKENS = "tokens"
    ASSIGNMENTS = "assignments"


@dataclass(frozen=True, slots=True)
class RankTraffic:
    """What the ranks of one EP group exchanged in one phase over a span.

    Attributes:
        ranks: int64 ``[ranks]``, EP ranks that reported or were named, increasing.
        reporting: bool ``[ranks]``, which of them reported.
        values: by kind, int64 ``[ranks, peers]`` on that axis both ways; seen from the row's rank.
        seconds: length of the span.
    """

    phase: Phase
    ranks: IntArray
    reporting: np.ndarray[tuple[int], np.dtype[np.bool_]]
    values: Mapping[TrafficValue, IntArray]
    seconds: float

    def per_second(self, value: TrafficValue) -> FloatArray:
        """A matrix per second of the span: float64 ``[ranks, peers]``, NaN in the rows of silent ranks."""
        matrix = self.values[value] / max(self.seconds, 1.0)
        matrix[~self.reporting] = np.nan
        return matrix

    def row_sums_per_second(self, value: TrafficValue) -> FloatArray:
        """What each rank's row adds up to, per second: float64 ``[ranks]``, NaN where a rank is silent."""
        sums: FloatArray = self.per_second(value).sum(axis=1)
        return sums

    def column_sums_per_second(self, value: TrafficValue) -> FloatArray:
        """What goes to (or comes from) each rank, per second, over all that reported: float64 ``[ranks]``."""
        sums: FloatArray = np.nansum(self.per_second(value), axis=0)
        return sums

    @property
    def num_reporting(self) -> int:
        """How many ranks reported."""
        return int(self.reporting.sum())

    @property
    def dedup_factor(self) -> float | None:
        """Assignments per token sent: how many times more would travel without deduplication."""
        tokens = int(self.values[TrafficValue.TOKENS].sum())
        return int(self.values[TrafficValue.ASSIGNMENTS].sum()) / tokens if tokens else None

    @property
    def bytes_per_second(self) -> float:
        """Bytes sent by all ranks, per second of the span."""
        return int(self.values[TrafficValue.BYTES_SENT].sum()) / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_token(self) -> float | None:
        """Bytes sent per deduplicated token."""
        tokens = int(self.values[TrafficValue.TOKENS].sum())
        return int(self.values[TrafficValue.BYTES_SENT].sum()) / tokens if tokens else None


@dataclass(frozen=True, slots=True)
class BusiestPair:
    """The pair of ranks with the largest value of a matrix."""

    rank: int
    peer: int
    value: int
    times_mean: float


def read_traffic(store: Store, span: Span) -> Mapping[Phase, RankTraffic]:
    """Read what the ranks of one EP group exchanged, by phase.

    Raises:
        StoreError: the store cannot answer.
    """
    table = store.query("rank_traffic", **span.params())
    phases = column_as_array(table, "phase")
    reporters, peers = (locked_int64(column_as_array(table, name)) for name in ("ep_rank", "peer_rank"))
    columns = {
        value: locked_int64(column_as_array(table, value.value.replace(" ", "_"))) for value in TrafficValue
    }
    found = {}
    for phase in Phase:
        rows = phases == phase.value
        if rows.any():
            of_phase = {value: column[rows] for value, column in columns.items()}
            found[phase] = arrange_traffic(phase, reporters[rows], peers[rows], of_phase, span.seconds)
    return found


def arrange_traffic(
    phase: Phase,
    reporters: IntArray,
    peers: IntArray,
    columns: Mapping[TrafficValue, IntArray],
    seconds: float,
) -> RankTraffic:
    """Arrange (reporting rank, peer rank, values) as matrices."""
    ranks = np.union1d(reporters, peers)
    cells = np.searchsorted(ranks, reporters), np.searchsorted(ranks, peers)
    values = {}
    for value, column in columns.items():
        matrix = np.zeros((len(ranks), len(ranks)), dtype=np.int64)
        np.add.at(matrix, cells, column)
        values[value] = locked_int64(matrix)
    return RankTraffic(phase, locked_int64(ranks), lock(np.isin(ranks, reporters)), values, seconds)


def find_busiest_pair(traffic: RankTraffic, value: TrafficValue) -> BusiestPair | None:
    """The largest cell off the diagonal, against the mean of such cells of reporting ranks."""
    matrix = traffic.values[value]
    if len(traffic.ranks) < 2:
        return None
    apart = ~np.eye(len(traffic.ranks), dtype=bool) & traffic.reporting[:, None]
    others = np.where(apart, matrix, 0)
    row, column = np.unravel_index(int(others.argmax()), others.shape)
    mean = float(matrix[apart].mean()) if apart.any() else 0.0
    if not mean:
        return None
    largest = int(others[row, column])
    return BusiestPair(int(traffic.ranks[row]), int(traffic.ranks[column]), largest, largest / mean)


def share_that_leaves_node(
    traffic: RankTraffic, value: TrafficValue, host_of_rank: Mapping[int, str]
) -> float | None:
    """Part of a matrix that goes to ranks on other hosts.

    Returns:
        None where the host of any rank is unknown, or nothing travelled.
    """
    hosts = [host_of_rank.get(rank, "") for rank in traffic.ranks.tolist()]
    total = int(traffic.values[value].sum())
    if not total or not all(hosts):
        return None
    named = np.array(hosts)
    leaves = named[:, None] != named[None, :]
    return float(traffic.values[value][leaves].sum() / total)


def leaves_rank(traffic: RankTraffic, value: TrafficValue) -> FloatArray:
    """Part of each rank's row that goes to other ranks: float64 ``[ranks]``, NaN in an empty row."""
    matrix = traffic.values[value].astype(np.float64)
    total = matrix.sum(axis=1)
    share = np.full(len(traffic.ranks), np.nan)
    np.divide(total - matrix.diagonal(), total, out=share, where=total > 0)
    answer: FloatArray = lock(share)
    return answer


def read_hosts(store: Store, span: Span) -> Mapping[int, str]:
    """Read on which host each rank of one EP group runs, the newest process of each.

    Raises:
        StoreError: the store cannot answer.
    """
    rows = store.query("rank_hosts", **span.params()).to_pylist()
    return {row["ep_rank"]: row["host"] for row in rows}
