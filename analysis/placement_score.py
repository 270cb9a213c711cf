"""What a placement makes of a load: tokens of each rank, and how far the fullest is above the mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from moescope.schemas.errors import ShapeError
from moescope.schemas.records import FloatArray
from moescope.schemas.topology import EMPTY_SLOT, Placement


def rank_loads(tokens_per_layer_expert: Any, placement: Placement) -> FloatArray:
    """Add up what each rank computes when an expert's tokens are split evenly over its copies.

    Args:
        tokens_per_layer_expert: any numeric dtype, ``[layers, experts]``: tokens, or tokens weighed by cost.
        placement: of the same layers and experts.

    Returns:
        float64 ``[layers, ranks]``, in the unit of the tokens.

    Raises:
        ShapeError: tokens and placement have different axes.
    """
    tokens = np.asarray(tokens_per_layer_expert, dtype=np.float64)
    table = placement.physical_to_logical_map
    layers, experts = len(table), placement.num_experts
    if tokens.shape != (layers, experts):
        raise ShapeError(
            f"tokens have the shape {tokens.shape}, the placement is for {layers} layers of {experts} experts"
        )
    column = np.where(table == EMPTY_SLOT, experts, table) + np.arange(layers)[:, None] * (experts + 1)
    copies = np.bincount(column.ravel(), minlength=layers * (experts + 1)).reshape(layers, experts + 1)
    tokens_per_copy = np.zeros((layers, experts + 1))
    np.divide(tokens, copies[:, :experts], out=tokens_per_copy[:, :experts])
    loads: FloatArray = tokens_per_copy.ravel()[column].reshape(layers, placement.ep_size, -1).sum(axis=2)
    return loads


def balance_ratio(tokens_per_layer_expert: Any, placement: Placement) -> FloatArray:
    """Divide the load of the fullest rank by the mean over all ranks: float64 ``[layers]``, 1 is perfect.

    A layer without tokens is balanced: 1. The same figure as mean / max (vLLM, SGLang) is its inverse, and as
    max / mean − 1 (TensorRT-LLM) one less.

    Raises:
        ShapeError: tokens and placement have different axes.
    """
    return max_over_mean(rank_loads(tokens_per_layer_expert, placement))


def max_over_mean(load_per_layer_rank: FloatArray) -> FloatArray:
    """Divide each layer's fullest rank by its mean: float64 ``[layers]``; 1 where there is no load."""
    mean = load_per_layer_rank.mean(axis=1)
    ratio = np.ones(len(mean))
    np.divide(load_per_layer_rank.max(axis=1), mean, out=ratio, where=mean > 0)
    return ratio
