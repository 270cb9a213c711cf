"""Tokens by peer rank on a torch device: four more small kernels a layer, by the rules of the expert counter.

A layer's choice is looked up in a table of ranks, marked in one scratch row per token, where a rank that is
hit twice is marked once, and the marks are added up by what the token rows are. All of it at fixed addresses:
it can be captured in a CUDA graph, and nothing waits for the device.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch

from moescope.collector.device_copy import DeviceCopy
from moescope.collector.expert_load import NUM_ROWS, Row
from moescope.collector.expert_load_torch import TorchExpertCounter
from moescope.schemas.records import IntArray


class TorchRankIoCounter(TorchExpertCounter):
    """An expert counter that is a :class:`~moescope.collector.rank_io.RankIoCounter` too.

    Args:
        ep_size: ranks of the group; for the rest see
            :class:`~moescope.collector.expert_load_torch.TorchExpertCounter`.

    Memory, beside the expert counter's: 8 · layers · rows · (experts + 2) + 8 · max_tokens · (ep_size + 1)
    bytes; 7.6 MB for K3 on 64 ranks with 8192 tokens a step.
    """

    def __init__(
        self, num_moe_layers: int, num_experts: int, max_tokens: int, device: Any = "cpu", *, ep_size: int
    ) -> None:
        super().__init__(num_moe_layers, num_experts, max_tokens, device)
        self.ep_size = ep_size
        with torch.inference_mode(mode=False):
            # One row of the table for each kind of token row, so that the expert counter's own index fits.
            # Rank `ep_size` is nobody: ids that the model does not have.
            table = torch.full((num_moe_layers, NUM_ROWS * self._width), ep_size, dtype=torch.int64)
            self._peers = table.to(device)
            self._peers_per_layer = tuple(self._peers.unbind(0))
            self._is_sent = torch.zeros((max_tokens, ep_size + 1), dtype=torch.int64, device=device)
            self._kinds = torch.full((max_tokens,), int(Row.PADDING), dtype=torch.int32, device=device)
            self._rank_tokens = torch.zeros((NUM_ROWS, ep_size + 1), dtype=torch.int64, device=device)
        self._rank_views: tuple[Any, Any, Any] = (None, None, None)
        self._rank_copy = DeviceCopy(self._rank_tokens)

    def set_peers(self, peer_per_layer_expert: IntArray) -> None:
        """See :meth:`moescope.collector.rank_io.RankIoCounter.set_peers`.

        Call it on the thread and stream that launch the forward pass.
        """
        table = np.full((self.num_moe_layers, NUM_ROWS, self._width), self.ep_size, dtype=np.int64)
        table[:, :, 1:-1] = peer_per_layer_expert[:, None]
        staged = torch.empty(tuple(self._peers.shape), dtype=torch.int64, pin_memory=self._peers.is_cuda)
        staged.numpy()[:] = table.reshape(self.num_moe_layers, -1)
        with torch.inference_mode(mode=False):
            self._peers.copy_(staged, non_blocking=True)

    def add(self, moe_layer_ordinal: int, topk_ids: Any) -> None:
        """See :meth:`moescope.collector.expert_load.ExpertCounter.add`."""
        index = self._count(moe_layer_ordinal, topk_ids)
        num_tokens, top_k = topk_ids.shape
        if num_tokens > self._max_tokens:  # rows beyond are padding
            num_tokens = self._max_tokens
            index = index[: num_tokens * top_k]
        if torch.compiler.is_compiling():  # as for the expert counter's views
            peers, is_sent, kinds = self._peers[moe_layer_ordinal], *self._rank_views_for(num_tokens)
        else:
            size, is_sent, kinds = self._rank_views
            if size != num_tokens:
                is_sent, kinds = self._rank_views_for(num_tokens)
                self._rank_views = (num_tokens, is_sent, kinds)
            peers = self._peers_per_layer[moe_layer_ordinal]
        is_sent.zero_()
        is_sent.scatter_(1, peers.index_select(0, index).view(num_tokens, top_k), 1)
        self._rank_tokens.index_add_(0, kinds, is_sent)

    def read_rank_tokens(self) -> IntArray:
        """See :meth:`moescope.collector.rank_io.RankIoCounter.read_rank_tokens`."""
        if os.getpid() == self._owner_pid:
            counts = self._rank_copy.fetch()
        else:
            counts = self._read_in_child(self._rank_tokens)
        return counts[:, :-1].copy()

    def _copies(self) -> list[DeviceCopy]:
        return [*super()._copies(), self._rank_copy]

    def _rank_views_for(self, num_tokens: int) -> tuple[Any, Any]:
        return self._is_sent[:num_tokens], self._kinds[:num_tokens]

    def _write_layout(self, kinds: Any, changed: int) -> None:
        super()._write_layout(kinds, changed)
        self._write_rows(self._kinds, kinds, changed, int(Row.PADDING))
