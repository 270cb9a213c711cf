"""What the token rows of one Transformers forward pass are, from nothing but its own inputs.

A pass over more than one new position computes a prompt, and so does one over an empty cache; anything else
is decoding. So a speculated run of several tokens, and generating without a cache, count as prefill: that is
the work that they are. Padded positions are routed too, and are padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from moescope.collector.expert_load import Row, Segment

BoolArray: TypeAlias = npt.NDArray[np.bool_]


def segments_of_forward(inputs: Mapping[str, Any]) -> tuple[Segment, ...]:
    """Read the arguments of the model's ``forward``.

    Waits for the device only where a prompt comes with an attention mask (one byte a position), or where a
    static cache keeps its length on the device.

    Args:
        inputs: ``input_ids`` or ``inputs_embeds`` ``[batch, positions, …]``, ``attention_mask`` and
            ``past_key_values`` as Transformers passes them.
    """
    tokens = inputs.get("input_ids")
    if tokens is None:
        tokens = inputs["inputs_embeds"]
    batch, positions = tokens.shape[:2]
    mask = _first_mask(inputs.get("attention_mask"))
    if positions == 1 and _has_past(mask, inputs.get("past_key_values")):
        return ((Row.DECODE, batch),)
    is_token = _tokens_in(mask, batch, positions, inputs.get("past_key_values"))
    return ((Row.PREFILL, batch * positions),) if is_token is None else _runs(is_token)


def _first_mask(mask: Any) -> Any:
    """Models with several kinds of attention get a dictionary of masks; all know the same padding."""
    if isinstance(mask, Mapping):
        return next((kind for kind in mask.values() if kind is not None), None)
    return mask


def _has_past(mask: Any, cache: Any) -> bool:
    if getattr(mask, "ndim", 0) == 2:
        return bool(mask.shape[1] > 1)
    return _cached_tokens(cache) > 0


def _cached_tokens(cache: Any) -> int:
    return 0 if cache is None else int(cache.get_seq_length())


def _tokens_in(mask: Any, batch: int, positions: int, cache: Any) -> BoolArray | None:
    """Bool ``[batch, positions]``: a token, not padding. None where the mask does not say."""
    ndim = getattr(mask, "ndim", 0)
    if ndim == 2:
        is_token = mask[:, -positions:] != 0
    elif ndim == 4:
        # [batch, heads, queries, keys]: a position that may not even attend to itself is padding.
        own = mask[:, 0].diagonal(_cached_tokens(cache), -2, -1)
        is_token = own if "bool" in str(own.dtype) else own == 0
    else:
        return None
    if is_token.shape != (batch, positions):
        is_token = is_token.expand(batch, positions)
    on_host: BoolArray = is_token.cpu().numpy()
    return on_host


def _runs(is_token: BoolArray) -> tuple[Segment, ...]:
    flat = is_token.ravel()
    starts = np.concatenate(([0], np.flatnonzero(flat[1:] != flat[:-1]) + 1))
    lengths = np.diff(starts, append=len(flat))
    return tuple(
        (Row.PREFILL if flat[start] else Row.PADDING, int(rows))
        for start, rows in zip(starts, lengths, strict=True)
    )
