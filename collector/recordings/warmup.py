"""Tokens that are none: blocks of one identical route, as warm-up and dummy batches leave them.

A text's neighbouring tokens do not take the same experts in every layer of a model; a block of dummy tokens
does. Raw recordings can consist of them for the greater part.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

LEAST_IDENTICAL_ROWS: Final = 16
"""A shorter block is taken for text: a word can be repeated."""


def find_identical_rows(
    topk_ids_per_layer_token: npt.NDArray[Any], least: int = LEAST_IDENTICAL_ROWS
) -> npt.NDArray[np.bool_]:
    """Say which tokens belong to a block of at least ``least`` neighbours with one route.

    Args:
        topk_ids_per_layer_token: ids ``[layers, tokens, top_k]``, −1 where there is none.
        least: the shortest block.

    Returns:
        bool ``[tokens]``. Tokens without any id, as in a pass that was not recorded, belong to none.
    """
    ids = topk_ids_per_layer_token
    tokens = ids.shape[1]
    found = np.zeros(tokens, dtype=np.bool_)
    if tokens < least:
        return found
    is_as_before = (ids[:, 1:] == ids[:, :-1]).all(axis=(0, 2))
    starts = np.flatnonzero(np.concatenate([[True], ~is_as_before]))
    for start, end in zip(starts, [*starts[1:], tokens], strict=True):
        found[start:end] = end - start >= least
    return found & (ids >= 0).any(axis=(0, 2))


def is_identical_pass(
    tokens_per_layer_expert: npt.NDArray[Any], top_k: int, least: int = LEAST_IDENTICAL_ROWS
) -> bool:
    """Whether every token of a pass took one route: in each MoE layer ``top_k`` experts have all of them."""
    used = tokens_per_layer_expert[tokens_per_layer_expert.any(axis=1)]
    if not len(used):
        return False
    tokens = int(used.max())
    return tokens >= least and bool(
        ((used == tokens).sum(axis=1) == top_k).all() and (used.sum(axis=1) == tokens * top_k).all()
    )
