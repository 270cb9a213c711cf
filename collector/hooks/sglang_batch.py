"""What the token rows of one SGLang forward pass are: which phase, and which of them are no request's.

Pure arithmetic on host numbers that the batch carries; nothing here touches a device. SGLang pads a batch
only after it has announced it, always at its end: rows beyond the segments are padding.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final

from moescope.collector.expert_load import Row, Segment

DECODING: Final = "moescope_decoding"
"""Attribute that the hook sets on a batch: how many of its last requests decode in an extend pass."""

_HEALTH_CHECK: Final = "HEALTH_CHECK"


def is_synthetic(batch: Any) -> bool:
    """Whether a batch was made up: warm-up, autotuning and capture have no requests, not even none."""
    return batch.rids is None


def segments_of(batch: Any) -> tuple[Segment, ...]:
    """Say what the rows of a batch are, in batch order; nothing for an idle one."""
    mode = batch.forward_mode
    if mode.is_idle():
        return ()
    tokens = num_tokens_of(batch)
    if mode.is_decode() or mode.is_target_verify():
        # Speculative decoding verifies several tokens of a request at once.
        return joined((_row_of(rid, Row.DECODE), n) for rid, n in _per_request(batch, tokens))
    lengths = batch.extend_seq_lens_cpu
    if lengths is None:
        return ((Row.PREFILL, tokens),)
    first_decoding = len(lengths) - _num_decoding(batch, lengths)
    rids = [*batch.rids, *[""] * len(lengths)]
    return joined(
        (_row_of(rids[i], Row.DECODE if i >= first_decoding else Row.PREFILL), int(length))
        for i, length in enumerate(lengths)
    )


def num_tokens_of(batch: Any) -> int:
    """Token rows of a batch before it is padded."""
    return len(batch.input_ids) if batch.input_ids is not None else int(batch.batch_size)


def continues_a_pass(batch: Any) -> bool:
    """Whether this is one more part of a prefill that runs its layers in several passes."""
    return bool(batch.forward_mode.is_split_prefill() and batch.split_index)


def most_idle_rows(batch: Any) -> int:
    """More rows than an idle pass has beside its busy neighbours, and seldom another number than before."""
    most = max(batch.global_num_tokens_cpu or (0,))
    return 2 << max(int(most), 512).bit_length()


def joined(rows: Iterable[Segment]) -> tuple[Segment, ...]:
    """Join neighbours of one kind; leave out those without rows."""
    by_kind = groupby(((kind, n) for kind, n in rows if n), key=lambda item: item[0])
    return tuple((kind, sum(n for _, n in group)) for kind, group in by_kind)


def _per_request(batch: Any, tokens: int) -> Iterable[tuple[str, int]]:
    requests = len(batch.rids)
    if not requests or tokens % requests:
        return [("", tokens)]
    return ((rid, tokens // requests) for rid in batch.rids)


def _row_of(rid: str, row: Row) -> Row:
    """A health check is a request that nobody made."""
    return Row.DUMMY if str(rid).startswith(_HEALTH_CHECK) else row


def _num_decoding(batch: Any, lengths: Any) -> int:
    told = getattr(batch, DECODING, None)
    if told is not None:
        return min(int(told), len(lengths))
    if not batch.forward_mode.is_mixed():
        return 0
    # A copy of the batch without the mark: running requests come last, one token each.
    return next((i for i, length in enumerate(reversed(lengths)) if length != 1), len(lengths))
