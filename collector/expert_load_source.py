"""The counters of one engine process, read as records: what was counted since they were last read."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from moescope.collector.expert_load import ExpertCounter, Row, Segment
from moescope.collector.rank_io import RankIo, RankIoCounter
from moescope.schemas import metrics
from moescope.schemas.attributes import EXCLUDED, PHASE, Excluded, Phase
from moescope.schemas.errors import ShapeError
from moescope.schemas.identity import EngineIdentity
from moescope.schemas.records import Attributes, IndexedCounts, IntArray, Measurement, Record
from moescope.schemas.topology import Placement, place_contiguously

logger = logging.getLogger("moescope")

_LOAD_ROWS: Final = {Row.PREFILL: Phase.PREFILL, Row.DECODE: Phase.DECODE}
_LOAD: Final = slice(Row.PREFILL, Row.DECODE + 1)
_COUNTED_ROWS: Final = (Row.PADDING, Row.WARMUP, Row.DUMMY)
_TOKEN_ATTRIBUTES: Final[Mapping[Row, Attributes]] = {
    Row.PREFILL: {PHASE: Phase.PREFILL.value, EXCLUDED: Excluded.NONE.value},
    Row.DECODE: {PHASE: Phase.DECODE.value, EXCLUDED: Excluded.NONE.value},
    Row.PADDING: {EXCLUDED: Excluded.PADDING.value},
    Row.WARMUP: {EXCLUDED: Excluded.WARMUP.value},
    Row.DUMMY: {EXCLUDED: Excluded.DUMMY.value},
}


class ExpertLoadSource:
    """The counters of one engine process, read as windows.

    Args:
        identity: who reports; its shape gives the layers and experts.
        counter: where ids are counted, on the engine's device; one that counts by peer rank too is asked for
            that as well.
        placement: where the copies are; contiguous blocks, as engines do without one, if None.
        snapshot_every_windows: each window carries the placement of every n-th layer, so that all of it goes
            out once in n windows and no window is much larger than the others.
    """

    def __init__(
        self,
        identity: EngineIdentity,
        counter: ExpertCounter,
        placement: Placement | None = None,
        *,
        snapshot_every_windows: int = 1,
    ) -> None:
        shape = identity.shape
        if (counter.num_moe_layers, counter.num_experts) != (shape.num_moe_layers, shape.num_experts):
            raise ShapeError(
                f"the counter has {counter.num_moe_layers} layers × {counter.num_experts} experts, "
                f"{shape.name} has {shape.num_moe_layers} × {shape.num_experts}"
            )
        self.identity = identity
        self.counter = counter
        self._host_counts: IntArray | None = None
        self._ordinal_of_layer = {layer: ordinal for ordinal, layer in enumerate(shape.moe_layers)}
        self._scheduled = [0] * len(Row)
        self._placement = placement or place_contiguously(shape, identity.grid.ep_size)
        self._replicas = self._replicas_here()
        self._rank_io: RankIo | None = None
        if isinstance(counter, RankIoCounter):
            self._rank_io = RankIo(counter, identity.grid.ep_rank, self._placement)
        self._snapshot_every = snapshot_every_windows
        self._windows = 0
        self._is_due = np.ones(shape.num_moe_layers, dtype=np.bool_)
        self._has_warned = False
        self.reset()

    def reset(self) -> None:
        """Leave what was counted so far to somebody else: the parent of a fork."""
        self._read_counts = self._read_all()
        self._read_tokens = self._tokens_so_far(self._scheduled, self._read_counts)
        self._is_due[:] = True
        if self._rank_io is not None:
            self._rank_io.reset()

    def begin_step(self, *segments: Segment) -> None:
        """See :meth:`Recorder.begin_step`."""
        for row, tokens in segments:
            if row is not Row.PADDING:  # the device counts those, with the ones that nobody names
                self._scheduled[row] += tokens
        self.counter.set_layout(segments)

    def record_topk(self, layer: int, topk_ids: Any) -> None:
        """See :meth:`Recorder.record_topk`.

        Raises:
            ShapeError: the model has no routed experts in that layer.
        """
        ordinal = self._ordinal_of_layer.get(layer)
        if ordinal is None:
            raise ShapeError(f"layer {layer} of {self.identity.shape.name} has no routed experts")
        self.counter.add(ordinal, topk_ids)

    def add_counts(self, phase: Phase, tokens: int, tokens_per_layer_expert: IntArray) -> None:
        """See :meth:`Recorder.add_counts`.

        Raises:
            ShapeError: the counts do not have the model's shape.
        """
        shape = self.identity.shape
        expected = (shape.num_moe_layers, shape.num_experts)
        if tokens_per_layer_expert.shape != expected:
            raise ShapeError(f"counts have the shape {tokens_per_layer_expert.shape}, expected {expected}")
        if tokens_per_layer_expert.min() < 0:
            raise ShapeError("counts are negative; hand over what came since the last call, not a difference")
        row = Row.PREFILL if phase is Phase.PREFILL else Row.DECODE
        self._scheduled[row] += tokens
        if self._host_counts is None:
            # Only engines that count for themselves pay for a second array.
            self._host_counts = np.zeros((shape.num_moe_layers, len(Row), shape.num_experts), dtype=np.int64)
        self._host_counts[:, row] += tokens_per_layer_expert

    def set_placement(self, placement: Placement) -> None:
        """See :meth:`Recorder.set_placement`.

        Raises:
            ShapeError: the placement is for another model or group.
        """
        shape, grid = self.identity.shape, self.identity.grid
        if (len(placement.physical_to_logical_map), placement.num_experts) != (
            shape.num_moe_layers,
            shape.num_experts,
        ) or placement.ep_size != grid.ep_size:
            raise ShapeError(f"the placement does not fit {shape.name} on {grid.ep_size} ranks")
        self._placement = placement
        before, self._replicas = self._replicas, self._replicas_here()
        self._is_due |= (before != self._replicas).any(axis=1)
        if self._rank_io is not None:
            self._rank_io.set_placement(placement)

    def close_window(self, *, snapshot: bool) -> tuple[Record, ...]:  # noqa: ARG002 - spread over windows instead
        """Return what was counted since the last call. One thread only.

        Cost: one copy of ``8 · layers · rows · (experts + 2)`` bytes from the device; the engine's own
        stream is not waited for.
        """
        scheduled = list(self._scheduled)
        counts = self._read_all()
        tokens_so_far = self._tokens_so_far(scheduled, counts)
        load = counts[:, _LOAD, 1:-1] - self._read_counts[:, _LOAD, 1:-1]
        tokens = [now - before for now, before in zip(tokens_so_far, self._read_tokens, strict=True)]
        # What can fail comes first: once the counts are taken as read they exist only in these records.
        by_peer = [] if self._rank_io is None else self._rank_io.close_window(load)
        self._read_counts, self._read_tokens = counts, tokens_so_far
        self._warn_about_foreign_ids(counts)
        return (
            *self._expert_records(load),
            *self._token_records(tokens),
            *self._placement_records(),
            *by_peer,
        )

    def _tokens_so_far(self, scheduled: list[int], counts: IntArray) -> list[int]:
        """Token rows by kind, as the engine scheduled them.

        Padding, and how many rows an idle or warm-up pass has, an engine may not know in advance: then the
        device has counted those of the first MoE layer.
        """
        tokens = list(scheduled)
        for row in _COUNTED_ROWS:
            tokens[row] = max(tokens[row], int(counts[0, row].sum()) // self.identity.shape.top_k)
        return tokens

    def _warn_about_foreign_ids(self, counts: IntArray) -> None:
        """Say once where a router selects ids that the model does not have; they are nobody's load."""
        foreign = int(counts[:, _LOAD, 0].sum() + counts[:, _LOAD, -1].sum())
        if foreign and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "moescope: %d selected ids are outside 0 … %d of %s and are not counted; "
                "reports will miss these assignments. Is the shape right?",
                foreign,
                self.identity.shape.num_experts - 1,
                self.identity.shape.name,
            )

    def _read_all(self) -> IntArray:
        counts = self.counter.read()
        if self._host_counts is not None:
            counts[:, :, 1:-1] += self._host_counts
        return counts

    def _expert_records(self, load: IntArray) -> list[Record]:
        layers = self.identity.shape.layer_index
        return [
            IndexedCounts(metrics.EXPERT_TOKENS, layers, load[:, row], {PHASE: phase.value})
            for row, phase in _LOAD_ROWS.items()
        ]

    def _token_records(self, tokens: list[int]) -> list[Record]:
        # The phases always, excluded rows only where there were some.
        return [
            Measurement(metrics.TOKENS, tokens[row], attributes)
            for row, attributes in _TOKEN_ATTRIBUTES.items()
            if row in _LOAD_ROWS or tokens[row]
        ]

    def _placement_records(self) -> list[Record]:
        """The placement of the layers whose turn it is, and of those that changed."""
        turn = self._windows % self._snapshot_every
        self._windows += 1
        self._is_due[turn :: self._snapshot_every] = True
        due = np.flatnonzero(self._is_due)
        self._is_due[due] = False  # only these: another layer may have been moved meanwhile
        if not len(due):
            return []
        layers = self.identity.shape.layer_index[due]
        return [IndexedCounts(metrics.EXPERT_REPLICAS, layers, self._replicas[due])]

    def _replicas_here(self) -> IntArray:
        return self._placement.replicas_on_rank(self.identity.grid.ep_rank)
