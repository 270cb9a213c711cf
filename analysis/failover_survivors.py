"""What the ranks that stay compute in place of those that are gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from moescope.analysis.failover_share import BoolArray, TokenArray, tokens_of_layers
from moescope.analysis.imbalance import ReplicaArray
from moescope.schemas.records import FloatArray, IntArray

_NEWTON_STEPS: Final = 60
_CERTAIN: Final = 1 - 1e-12
"""Chance from which an expert counts as always chosen."""


def spread_over_copies(tokens: TokenArray, replicas: ReplicaArray) -> FloatArray:
    """Assignments that each rank computes, an expert's split evenly over its copies.

    Args:
        tokens: ``[layers, experts]``; those of experts without a copy are computed by nobody.
        replicas: ``[ranks, layers, experts]``.

    Returns:
        float64 ``[layers, ranks]``.
    """
    (loads,) = sum_over_ranks([tokens_per_copy(tokens, replicas.sum(axis=0, dtype=np.int64))], replicas)
    return loads


def tokens_per_copy(tokens: TokenArray, copies: IntArray) -> FloatArray:
    """Assignments of each copy of an expert: float64 ``[layers, experts]``; 0 where there is none.

    Args:
        tokens: ``[layers, experts]``.
        copies: int64 ``[layers, experts]``.
    """
    per_copy = np.zeros(tokens.shape)
    np.divide(tokens, copies, out=per_copy, where=copies > 0)
    return per_copy


def sum_over_ranks(per_copy: Sequence[FloatArray], replicas: ReplicaArray) -> tuple[FloatArray, ...]:
    """What each rank has of several amounts per copy; together, since reading a large placement is dear.

    Args:
        per_copy: each float64 ``[layers, experts]``.
        replicas: ``[ranks, layers, experts]``.

    Returns:
        of each, float64 ``[layers, ranks]``.
    """
    held = replicas.transpose(1, 0, 2).astype(np.float64)
    sums = np.matmul(held, np.stack(per_copy, axis=-1))
    return tuple(np.ascontiguousarray(sums[:, :, one]) for one in range(len(per_copy)))


def choose_next_best(tokens: TokenArray, is_lost: BoolArray, top_k: int) -> FloatArray:
    """Assignments of each expert once no token can choose a lost one.

    Every token still makes ``top_k`` choices. Experts are chosen as before in proportion to their
    popularity, none twice by the same token: expert e by the share 1 − exp(−aₑ) of the tokens before and by
    1 − exp(−aₑ u) after, with u ≥ 1 such that a layer adds up. Where few tokens choose an expert, this is
    growth by the same factor for all. (Successive sampling; Rosén 1997 for the exponential form.)

    Args:
        tokens: ``[layers, experts]``.
        is_lost: bool ``[layers, experts]``.
        top_k: experts per token.

    Returns:
        float64 ``[layers, experts]``. A layer adds up to what it had, unless fewer experts are left than a
        token chooses: then every token gets all of them, and the rest of its choices is missing.
    """
    of_layer = tokens_of_layers(tokens, top_k)[:, None]
    chances = np.zeros(tokens.shape)
    np.divide(tokens, of_layer, out=chances, where=of_layer > 0)
    wanted = chances.sum(axis=1)
    left = ~is_lost
    # One that was never chosen stands in only where too few others are left.
    weights = np.where(left, -np.log1p(-np.minimum(chances, _CERTAIN)), 0.0)
    after = np.where(left, chances, 0.0)
    touched = (chances * is_lost).sum(axis=1) > 0
    can_grow = touched & ((weights > 0).sum(axis=1) > wanted)
    after[can_grow] = _grow(weights[can_grow], wanted[can_grow])
    after[touched & ~can_grow] = (weights > 0)[touched & ~can_grow]
    after[touched] = _fill(after[touched], left[touched], wanted[touched])
    result: FloatArray = np.where(touched[:, None], after * of_layer, left * tokens)
    return result


def _grow(weights: FloatArray, wanted: FloatArray) -> FloatArray:
    """1 − exp(−a·u) with u such that each row adds up: Newton from below on a concave function."""
    times = np.ones((len(weights), 1))
    for _ in range(_NEWTON_STEPS):
        spared = np.exp(-weights * times)
        missing = wanted[:, None] - (1 - spared).sum(axis=1, keepdims=True)
        slope = (weights * spared).sum(axis=1, keepdims=True)
        times += np.where(missing > 0, missing / np.maximum(slope, 1e-300), 0.0)
        if not len(missing) or missing.max() < 1e-12 * max(wanted.max(), 1.0):
            break
    grown: FloatArray = -np.expm1(-weights * times)
    return grown


def _fill(chances: FloatArray, left: BoolArray, wanted: FloatArray) -> FloatArray:
    """Give what a row still lacks to the experts that are left, each up to one choice of every token."""
    room = np.where(left, 1 - chances, 0.0)
    total = room.sum(axis=1)
    lacks = np.clip(wanted - chances.sum(axis=1), 0.0, total)
    share = np.divide(lacks, total, out=np.zeros(len(total)), where=total > 0)
    filled: FloatArray = chances + room * share[:, None]
    return filled
