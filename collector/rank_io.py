"""Tokens and assignments by peer rank: what a rank's own choice of experts sends to each rank.

Where an expert's only copy is, its tokens go: without replicas these numbers are exact. Where an expert has
several copies, engines choose one by rules of their own. Here this rank itself serves what it holds, and each
other expert has one fixed holder per source rank, the sources spread evenly over the holders: an estimate.

Tokens that an all-gather sends to every rank, wanted or not, are in ``moe.rank.io``; these numbers are what
had to go there.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from moescope.collector.expert_load import ExpertCounter, NumpyExpertCounter, Row
from moescope.schemas import metrics
from moescope.schemas.attributes import PHASE, Phase
from moescope.schemas.errors import ShapeError
from moescope.schemas.records import IndexedCounts, IntArray, Record
from moescope.schemas.topology import Placement

_NO_LAYERS: Final = np.empty(0, dtype=np.int64)
_LOAD_ROWS: Final = {Row.PREFILL: Phase.PREFILL, Row.DECODE: Phase.DECODE}
NUM_PHASES: Final = len(_LOAD_ROWS)


@runtime_checkable
class RankIoCounter(ExpertCounter, Protocol):
    """An expert counter that also counts each token once per peer rank and layer.

    A recorder that gets one reports ``moe.rank.tokens`` and ``moe.rank.assignments`` by itself.
    """

    @property
    def ep_size(self) -> int:
        """Ranks of the group."""

    def set_peers(self, peer_per_layer_expert: IntArray) -> None:
        """Say which rank serves each expert from now on: int64 ``[num_moe_layers, num_experts]``."""

    def read_rank_tokens(self) -> IntArray:
        """Copy the token counts to the host: int64 ``[phases, ep_size]``, caller-owned; they only grow."""


def find_peers(placement: Placement, ep_rank: int) -> IntArray:
    """Which rank serves each expert for the tokens of ``ep_rank``: int64 ``[num_moe_layers, num_experts]``.

    Itself where it holds a copy. Otherwise one holder, always the same: the source ranks without a copy, in
    order and shifted by the expert, take turns.
    """
    holds = placement.replicas_per_rank_layer_expert() > 0
    # 1 for the first holder of an expert, 2 for the second, …
    order = np.cumsum(holds, axis=0, dtype=np.int16)
    holders_before = order[ep_rank] - holds[ep_rank]
    turn = ep_rank - holders_before + np.arange(placement.num_experts)
    chosen = turn % order[-1] + 1
    peers: IntArray = np.argmax(order == chosen, axis=0).astype(np.int64)
    peers[holds[ep_rank]] = ep_rank
    return peers


class NumpyRankIoCounter(NumpyExpertCounter):
    """Counts on the host. For engines that hand out numpy arrays, for simulators and for tests."""

    def __init__(self, num_moe_layers: int, num_experts: int, *, ep_size: int) -> None:
        super().__init__(num_moe_layers, num_experts)
        self.ep_size = ep_size
        # The last column is nobody: ids that the model does not have.
        self._peers = np.full((num_moe_layers, num_experts + 2), ep_size, dtype=np.int64)
        self._rank_tokens = np.zeros((NUM_PHASES, ep_size + 1), dtype=np.int64)

    def set_peers(self, peer_per_layer_expert: IntArray) -> None:
        """See :meth:`RankIoCounter.set_peers`."""
        self._peers[:, 1:-1] = peer_per_layer_expert

    def add(self, moe_layer_ordinal: int, topk_ids: Any) -> None:
        """See :meth:`moescope.collector.expert_load.ExpertCounter.add`."""
        super().add(moe_layer_ordinal, topk_ids)
        columns = np.clip(np.asarray(topk_ids), -1, self.num_experts).astype(np.int64) + 1
        is_sent = np.zeros((len(columns), self.ep_size + 1), dtype=np.int64)
        np.put_along_axis(is_sent, self._peers[moe_layer_ordinal][columns], 1, axis=1)
        rows = self._rows_of(len(columns))
        for phase in range(NUM_PHASES):
            self._rank_tokens[phase] += is_sent[rows == phase].sum(axis=0)

    def read_rank_tokens(self) -> IntArray:
        """See :meth:`RankIoCounter.read_rank_tokens`."""
        return self._rank_tokens[:, :-1].copy()


class RankIo:
    """The tokens and assignments by peer rank since they were last asked for, beside the expert load.

    Args:
        counter: counts the tokens.
        ep_rank: this rank.
        placement: where the copies are.
    """

    def __init__(self, counter: RankIoCounter, ep_rank: int, placement: Placement) -> None:
        if counter.ep_size != placement.ep_size:
            raise ShapeError(f"the counter has {counter.ep_size} ranks, the placement {placement.ep_size}")
        self._counter = counter
        self._ep_rank = ep_rank
        self.set_placement(placement)
        self.reset()

    def reset(self) -> None:
        """Leave what was counted so far to the parent of a forked child."""
        self._read_tokens = self._counter.read_rank_tokens()

    def set_placement(self, placement: Placement) -> None:
        """Follow the copies. All assignments of the window under way are taken to be by the new placement."""
        self._peers = find_peers(placement, self._ep_rank)
        self._counter.set_peers(self._peers)

    def close_window(self, load: IntArray) -> list[Record]:
        """Return the records of a window.

        Args:
            load: assignments of the window, int64 ``[num_moe_layers, phases, num_experts]``.
        """
        now = self._counter.read_rank_tokens()
        tokens, self._read_tokens = now - self._read_tokens, now
        records: list[Record] = []
        for row, phase in _LOAD_ROWS.items():
            attributes = {PHASE: phase.value}
            assignments = self._by_peer(load[:, row])
            records += [
                IndexedCounts(metrics.RANK_TOKENS, _NO_LAYERS, tokens[row][None], attributes),
                IndexedCounts(metrics.RANK_ASSIGNMENTS, _NO_LAYERS, assignments[None], attributes),
            ]
        return records

    def _by_peer(self, load: IntArray) -> IntArray:
        sums = np.bincount(self._peers.ravel(), load.ravel(), minlength=self._counter.ep_size)
        return sums.astype(np.int64)  # a double holds every whole number up to 2^53
