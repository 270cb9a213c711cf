"""What the token rows of one vLLM step are: which phase, and which of them this rank routes.

Pure arithmetic on host numbers that the model runner has at hand; nothing here touches a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from moescope.collector.expert_load import Row, Segment


def segments_of_requests(
    is_prefill: npt.NDArray[np.bool_], num_tokens: npt.NDArray[np.integer[Any]]
) -> tuple[Segment, ...]:
    """Join neighbouring requests of one phase.

    Args:
        is_prefill: bool ``[requests]``, in batch order: still computing its prompt.
        num_tokens: int ``[requests]``: token rows of each request in this step.
    """
    if not is_prefill.any():
        return ((Row.DECODE, int(num_tokens.sum())),)
    starts = np.concatenate(([0], np.flatnonzero(is_prefill[1:] != is_prefill[:-1]) + 1))
    sums = np.add.reduceat(num_tokens, starts)
    return tuple(
        (Row.PREFILL if is_prefill[start] else Row.DECODE, int(rows))
        for start, rows in zip(starts, sums, strict=True)
    )


def segments_of_v1(runner: Any, num_scheduled_tokens: npt.NDArray[np.integer[Any]]) -> tuple[Segment, ...]:
    """Read the batch of Model Runner V1, after its ``_prepare_inputs``."""
    batch = runner.input_batch
    requests = batch.num_reqs
    is_prefill = batch.num_computed_tokens_cpu[:requests] < batch.num_prompt_tokens[:requests]
    return segments_of_requests(is_prefill, num_scheduled_tokens[:requests])


def segments_of_v2(batch: Any) -> tuple[Segment, ...]:
    """Read the batch that Model Runner V2's ``prepare_inputs`` returned."""
    requests = batch.num_reqs
    num_tokens = np.diff(batch.query_start_loc_np[: requests + 1])
    return segments_of_requests(batch.is_prefilling_np[:requests], num_tokens)


def shard_of(segments: Sequence[Segment], num_rows: int, rank: int, size: int) -> tuple[Segment, ...]:
    """Cut out the rows that one rank routes where the batch is split by sequence parallelism.

    Args:
        segments: the whole batch of this data-parallel rank.
        num_rows: its rows with padding; each of ``size`` ranks gets ``ceil(num_rows / size)`` of them.
        rank: this rank, among ``size``.
        size: ranks that share the batch.
    """
    rows_per_rank = -(-num_rows // size)
    first, last = rank * rows_per_rank, (rank + 1) * rows_per_rank
    shard: list[Segment] = []
    start = 0
    for row, tokens in segments:
        end = start + tokens
        kept = min(end, last) - max(start, first)
        if kept > 0:
            shard.append((row, kept))
        start = end
    return tuple(shard)


def own_rows(
    num_ids: int, tokens_per_dp_rank: Sequence[int], dp_rank: int, tp_rank: int = 0, sp_size: int = 1
) -> slice | None:
    """Find this rank's rows where ids may have been gathered from every rank before they were routed.

    Args:
        num_ids: rows of the ids.
        tokens_per_dp_rank: rows of each data-parallel rank, padding included.
        dp_rank: this data-parallel rank.
        tp_rank: this rank among those that share its rows.
        sp_size: ranks that a data-parallel rank's rows are split over; 1 where they are not.

    Returns:
        the rows, or None where ``num_ids`` fits neither this rank's rows nor everybody's.
    """
    sizes = [-(-tokens // sp_size) for tokens in tokens_per_dp_rank for _ in range(sp_size)]
    mine = dp_rank * sp_size + (tp_rank if sp_size > 1 else 0)
    if num_ids == sizes[mine]:
        return slice(0, num_ids)
    if num_ids == sum(sizes):
        start = sum(sizes[:mine])
        return slice(start, start + sizes[mine])
    return None
