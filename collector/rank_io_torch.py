"""Tokens by peer rank on a torch device: five more small kernels a layer, by the rules of the expert counter.

A layer's choice is looked up in a table of phases and ranks, marked in one scratch row per token, where a
rank that is hit twice is marked once, and the marks are added up over the tokens. All of it at fixed
addresses: it can be captured in a CUDA graph, and nothing waits for the device.

Marks and sums are floating-point numbers, which add up several times faster than the integers that they are:
a pass of fewer than 2^24 tokens, and fewer than 2^53 of them in all, are exact.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch

from moescope.collector.device_copy import DeviceCopy
from moescope.collector.expert_load import NUM_ROWS
from moescope.collector.expert_load_torch import TorchExpertCounter
from moescope.collector.rank_io import NUM_PHASES
from moescope.schemas.records import IntArray


class TorchRankIoCounter(TorchExpertCounter):
    """An expert counter that is a :class:`~moescope.collector.rank_io.RankIoCounter` too.

    Args:
        ep_size: ranks of the group; for the rest see
            :class:`~moescope.collector.expert_load_torch.TorchExpertCounter`.

    Memory beside it: 8 · layers · rows · (experts + 2) + 4 · max_tokens · (2 · ep_size + 1)
    bytes; 7.5 MB for K3 on 64 ranks with 8192 tokens a step.
    """

    def __init__(
        self, num_moe_layers: int, num_experts: int, max_tokens: int, device: Any = "cpu", *, ep_size: int
    ) -> None:
        super().__init__(num_moe_layers, num_experts, max_tokens, device)
        self.ep_size = ep_size
        self._nobody = NUM_PHASES * ep_size
        with torch.inference_mode(mode=False):
            # One row of the table for each kind of token row, so that the expert counter's own index fits.
            self._cells = torch.full(
                (num_moe_layers, NUM_ROWS * self._width), self._nobody, dtype=torch.int64, device=device
            )
            self._cells_per_layer = tuple(self._cells.unbind(0))
            self._is_sent = torch.zeros((max_tokens, self._nobody + 1), dtype=torch.float32, device=device)
            self._rank_tokens = torch.zeros(self._nobody + 1, dtype=torch.float64, device=device)
        self._marks: tuple[Any, Any] = (None, None)
        self._rank_copy = DeviceCopy(self._rank_tokens)

    def set_peers(self, peer_per_layer_expert: IntArray) -> None:
        """See :meth:`moescope.collector.rank_io.RankIoCounter.set_peers`.

        Call it on the thread and stream that launch the forward pass.
        """
        # The last cell is nobody's: rows that are no load, and ids that the model does not have.
        table = np.full((self.num_moe_layers, NUM_ROWS, self._width), self._nobody, dtype=np.int64)
        for phase in range(NUM_PHASES):
            table[:, phase, 1:-1] = phase * self.ep_size + peer_per_layer_expert
        staged = torch.empty(tuple(self._cells.shape), dtype=torch.int64, pin_memory=self._cells.is_cuda)
        staged.numpy()[:] = table.reshape(self.num_moe_layers, -1)
        with torch.inference_mode(mode=False):
            self._cells.copy_(staged, non_blocking=True)

    def add(self, moe_layer_ordinal: int, topk_ids: Any) -> None:
        """See :meth:`moescope.collector.expert_load.ExpertCounter.add`."""
        index = self._count(moe_layer_ordinal, topk_ids)
        num_tokens, top_k = topk_ids.shape
        if num_tokens > self._max_tokens:  # rows beyond are padding
            num_tokens = self._max_tokens
            index = index[: num_tokens * top_k]
        if torch.compiler.is_compiling():  # as for the expert counter's views
            cells, is_sent = self._cells[moe_layer_ordinal], self._is_sent[:num_tokens]
        else:
            cells = self._cells_per_layer[moe_layer_ordinal]
            size, is_sent = self._marks
            if size != num_tokens:
                is_sent = self._is_sent[:num_tokens]
                self._marks = (num_tokens, is_sent)
        is_sent.zero_()
        is_sent.scatter_(1, cells.index_select(0, index).view(num_tokens, top_k), 1.0)
        self._rank_tokens.add_(is_sent.sum(0))

    def read_rank_tokens(self) -> IntArray:
        """See :meth:`moescope.collector.rank_io.RankIoCounter.read_rank_tokens`."""
        if os.getpid() == self._owner_pid:
            counts = self._rank_copy.fetch()
        else:
            counts = self._read_in_child(self._rank_tokens)
        return counts[:-1].reshape(NUM_PHASES, self.ep_size)

    def _copies(self) -> list[DeviceCopy]:
        return [*super()._copies(), self._rank_copy]
