"""Counters for a rank that routes only a slice of its attention-DP rank's rows.

SGLang pads those rows after it has announced them, so where the slice begins is known only by its length:
rank r of the attention-TP group routes rows ``[r·n, (r+1)·n)``. A CUDA graph has one such length, and the
layout stays where the graph expects it.
"""

from __future__ import annotations

from typing import Any

import torch

from moescope.collector.expert_load import Row
from moescope.collector.expert_load_torch import TorchExpertCounter
from moescope.collector.rank_io_torch import TorchRankIoCounter


def open_counter(
    num_moe_layers: int,
    num_experts: int,
    max_tokens: int,
    device: Any,
    *,
    ep_size: int,
    shard: int | None,
    by_peer: bool,
) -> TorchExpertCounter:
    """Make the counter that fits a rank; ``max_tokens`` are those of its attention-DP rank."""
    if by_peer:
        if shard is None:
            return TorchRankIoCounter(num_moe_layers, num_experts, max_tokens, device, ep_size=ep_size)
        return _ShardRankIoCounter(
            num_moe_layers, num_experts, max_tokens, device, ep_size=ep_size, shard=shard
        )
    if shard is None:
        return TorchExpertCounter(num_moe_layers, num_experts, max_tokens, device)
    return _ShardExpertCounter(num_moe_layers, num_experts, max_tokens, device, shard=shard)


class _Shard(TorchExpertCounter):
    """Reads the layout from the shard's first row on."""

    _shard: int

    def _views_for(self, shape: Any) -> tuple[Any, Any]:
        num_tokens, top_k = shape
        rows = self._slice(self._row_base, num_tokens, self._base_of(Row.PADDING))
        return rows, self._one.expand(num_tokens * top_k)

    def _slice(self, per_row: Any, num_tokens: int, padding: int) -> Any:
        first = self._shard * num_tokens
        rows = per_row[first : first + num_tokens]
        missing = num_tokens - len(rows)
        if not missing:
            return rows
        return torch.cat((rows, torch.full_like(per_row[:1], padding).expand(missing, *per_row.shape[1:])))


class _ShardExpertCounter(_Shard):
    def __init__(self, *args: Any, shard: int) -> None:
        super().__init__(*args)
        self._shard = shard


class _ShardRankIoCounter(_Shard, TorchRankIoCounter):
    def __init__(self, *args: Any, ep_size: int, shard: int) -> None:
        super().__init__(*args, ep_size=ep_size)
        self._shard = shard
