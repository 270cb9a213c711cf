"""Counters on a torch device: three small kernels a layer, no synchronisation, nothing that Python remembers.

The hot path adds fixed tensors at fixed addresses, so it can be captured in a CUDA graph and replayed, and
torch.compile can trace it. Which row a token is counted in is a tensor too (``row_base``), rewritten between
two forward passes and only when the composition of the batch changed.

The CUDA side (side stream, pinned buffers) was written by the rules of the CUDA programming guide; the tests
of this repository run on the CPU and do not execute it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import numpy as np
import torch

from moescope.collector.device_copy import DeviceCopy
from moescope.collector.expert_load import GUARDS, NUM_ROWS, Row, Segment
from moescope.schemas.records import IntArray

_INDEX_DTYPES: Final = (torch.int32, torch.int64)


class TorchExpertCounter:
    """Counts on ``device``: int64 ``[num_moe_layers, rows, num_experts + 2]``, one allocation.

    Args:
        max_tokens: the most token rows that a layout is kept for; rows beyond it count as padding.
        device: where the ids are: anything that ``torch.device`` takes.

    Memory: 8 · layers · rows · (experts + 2) + 4 · max_tokens bytes; 3.3 MB for K3.
    """

    def __init__(self, num_moe_layers: int, num_experts: int, max_tokens: int, device: Any = "cpu") -> None:
        self.num_moe_layers = num_moe_layers
        self.num_experts = num_experts
        self._width = num_experts + GUARDS
        self._max_tokens = max_tokens
        self._owner_pid = os.getpid()
        # A tensor made in inference mode could not be added to outside of it.
        with torch.inference_mode(mode=False):
            self._counts = torch.zeros(
                (num_moe_layers, NUM_ROWS * self._width), dtype=torch.int64, device=device
            )
            self._counts_per_layer = tuple(self._counts.unbind(0))
            padding = self._base_of(Row.PADDING)
            # int32: adding it to int32 ids is half the cost of a mixed addition.
            self._row_base = torch.full((max_tokens, 1), padding, dtype=torch.int32, device=device)
            self._padding_base = torch.full((1, 1), padding, dtype=torch.int32, device=device)
            self._one = torch.ones((), dtype=torch.int64, device=device)
        self._views: tuple[Any, Any, Any] = (None, None, None)
        self._segments: tuple[Segment, ...] = ()
        self._rows_in_use = 0
        self._copy = DeviceCopy(self._counts)

    @property
    def device(self) -> Any:
        """The torch device that the counts are on."""
        return self._counts.device

    def set_layout(self, segments: Sequence[Segment]) -> None:
        """See :meth:`moescope.collector.expert_load.ExpertCounter.set_layout`.

        Call it on the thread and stream that launch the forward pass. Costs nothing while the segments stay
        the same; otherwise one asynchronous copy of 4 bytes a row.
        """
        segments = tuple(segments)
        if segments == self._segments:
            return
        self._segments = segments
        kinds = np.repeat(np.asarray([row for row, _ in segments], dtype=np.int32), [n for _, n in segments])
        kinds = kinds[: self._max_tokens]
        changed = max(len(kinds), self._rows_in_use)
        self._rows_in_use = len(kinds)
        if changed:
            self._write_layout(kinds, changed)

    def add(self, moe_layer_ordinal: int, topk_ids: Any) -> None:
        """See :meth:`moescope.collector.expert_load.ExpertCounter.add`."""
        self._count(moe_layer_ordinal, topk_ids)

    def read(self) -> IntArray:
        """See :meth:`moescope.collector.expert_load.ExpertCounter.read`.

        On CUDA what the device has not computed yet is left for the next read: see
        :class:`~moescope.collector.device_copy.DeviceCopy`.
        """
        counts = self._copy.fetch() if os.getpid() == self._owner_pid else self._read_in_child(self._counts)
        return counts.reshape(self.num_moe_layers, NUM_ROWS, self._width)

    @contextmanager
    def reads_paused(self) -> Iterator[None]:
        """Keep the reporter's thread from calling the device, while this thread captures a CUDA graph."""
        with ExitStack() as paused:
            for copy in self._copies():
                paused.enter_context(copy.paused())
            yield

    def _copies(self) -> list[DeviceCopy]:
        return [self._copy]

    def _count(self, moe_layer_ordinal: int, topk_ids: Any) -> Any:
        """Count, and return where: the index ``[tokens · top_k]`` into one layer's rows and guarded ids."""
        if topk_ids.dtype not in _INDEX_DTYPES:
            topk_ids = topk_ids.to(torch.int64)
        # Views are dearer to make than to keep, and the layers of a step all ask for the same. A traced graph
        # must see one tensor of counts, and no view of the shape that it was traced with.
        if torch.compiler.is_compiling() or topk_ids.shape[0] > self._max_tokens:
            row_base, ones = self._views_for(topk_ids.shape)
            counts = self._counts[moe_layer_ordinal]
        else:
            shape, row_base, ones = self._views
            if shape != topk_ids.shape:
                row_base, ones = self._views_for(topk_ids.shape)
                self._views = (topk_ids.shape, row_base, ones)
            counts = self._counts_per_layer[moe_layer_ordinal]
        # The clamp is what keeps every id in its own row: on CUDA an index out of bounds kills the process.
        index = topk_ids.clamp(-1, self.num_experts).add_(row_base).flatten()
        counts.index_add_(0, index, ones)
        return index

    def _views_for(self, shape: Any) -> tuple[Any, Any]:
        """The rows of so many tokens, ``[tokens, 1]``, and a one for each of their ids."""
        num_tokens, top_k = shape
        if num_tokens <= self._max_tokens:
            row_base = self._row_base[:num_tokens]
        else:
            beyond = self._padding_base.expand(num_tokens - self._max_tokens, 1)
            row_base = torch.cat((self._row_base, beyond))
        return row_base, self._one.expand(num_tokens * top_k)

    @staticmethod
    def _read_in_child(counts: Any) -> IntArray:
        """Read in a forked child, where the lock of a copy may be held by a thread that is not there."""
        if counts.device.type == "cpu":
            return np.array(counts.numpy(), dtype=np.int64)
        # Its parent's device is out of its reach, and it has counted nothing there.
        return np.zeros(tuple(counts.shape), dtype=np.int64)

    def _base_of(self, row: Row) -> int:
        """Flat index of expert 0 in ``row``: id −1 is the guard before it."""
        return int(row) * self._width + 1

    def _write_layout(self, kinds: Any, changed: int) -> None:
        """Write int32 ``kinds`` of the first rows; those after them, up to ``changed``, become padding."""
        self._write_rows(self._row_base, kinds * self._width + 1, changed, self._base_of(Row.PADDING))

    def _write_rows(self, target: Any, values: Any, changed: int, rest: int) -> None:
        if target.device.type == "cpu":
            host = target.view(-1).numpy()
            host[: len(values)] = values
            host[len(values) : changed] = rest
            return
        # Each time a fresh block: the pinned allocator hands one out again only after its copy is done, so
        # a step that is still on its way to the device keeps its own layout.
        staged = torch.empty((changed, *target.shape[1:]), dtype=target.dtype, pin_memory=target.is_cuda)
        host = staged.view(-1).numpy()
        host[: len(values)] = values
        host[len(values) :] = rest
        target[:changed].copy_(staged, non_blocking=True)
