"""The best split of each expert's tokens over its copies, for engines that can split unevenly.

Most engines split evenly (vLLM by a hash, SGLang at random), and for them this is no plan. SGLang with
``--ep-dispatch-algorithm lp`` solves such a linear program for every batch; what it can reach with a
placement is what is computed here. Shares frozen from one window are no better than even ones on the next:
the program must be solved again for each batch, and a placement that is good for it joins ranks by copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from moescope.analysis.frozen import lock
from moescope.analysis.placement_score import balance_ratio, max_over_mean
from moescope.schemas.errors import MoescopeError
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import EMPTY_SLOT, Placement

LABEL: Final = "only for engines that solve the split for each batch (SGLang --ep-dispatch-algorithm lp)"
"""What must stand wherever these figures are shown."""


@dataclass(frozen=True, slots=True)
class UnevenSplit:
    """What an uneven split makes of a placement in the same window; no prediction.

    Attributes:
        share_per_slot: float64 ``[layers, slots]``, part of its expert's tokens that each slot computes; an
            expert's slots add up to 1, empty slots have 0.
        ratio_even: float64 ``[layers]``, max / mean over ranks with an even split.
        ratio_uneven: float64 ``[layers]``, with these shares; the least that the placement allows.
        label: whom this is for.
    """

    share_per_slot: FloatArray
    ratio_even: FloatArray
    ratio_uneven: FloatArray
    label: str = LABEL


def split_unevenly(tokens: IntArray | FloatArray, placement: Placement) -> UnevenSplit:
    """Split each layer's tokens so that its fullest rank has the fewest.

    Minimise z subject to Σ w[e(s)] x[s] ≤ z over the slots s of each rank and Σ x[s] = 1 over the slots of
    each expert, x ≥ 0 (linear program, HiGHS).

    Args:
        tokens: ``[layers, experts]``, not negative.
        placement: of the same layers and experts.

    Raises:
        ShapeError: tokens and placement have different axes.
    """
    ratio_even = balance_ratio(tokens, placement)
    table = placement.physical_to_logical_map
    held = table != EMPTY_SLOT
    load = np.take_along_axis(np.asarray(tokens, dtype=np.float64), np.maximum(table, 0), axis=1)
    load = np.where(held, load, 0.0)
    copies = np.take_along_axis(placement.replicas_per_layer_expert(), np.maximum(table, 0), axis=1)
    share = np.where(held, 1 / copies, 0.0)
    for layer in np.flatnonzero(ratio_even > 1):
        is_split = held[layer] & (copies[layer] > 1) & (load[layer] > 0)
        if is_split.any():
            share[layer, is_split] = _solve(load[layer], table[layer], is_split, placement.ep_size)
    loads = (share * load).reshape(len(table), placement.ep_size, -1).sum(axis=2)
    return UnevenSplit(lock(share), lock(ratio_even), lock(np.minimum(max_over_mean(loads), ratio_even)))


def _solve(load: FloatArray, experts: IntArray, is_split: np.ndarray, ranks: int) -> FloatArray:
    """Solve one layer: shares of the slots of experts with several copies, float64 ``[split slots]``."""
    slots = np.flatnonzero(is_split)
    rank_of_slot = np.arange(len(load)) // (len(load) // ranks)
    fixed = np.bincount(rank_of_slot, np.where(is_split, 0.0, load), minlength=ranks)
    mean = load[~is_split].sum() / ranks + _once(load, experts, slots).sum() / ranks
    count = len(slots)
    # Loads in units of the mean rank load; the last variable is the fullest rank.
    at_most = csr_array(
        (
            np.concatenate([load[slots] / mean, np.full(ranks, -1.0)]),
            (
                np.concatenate([rank_of_slot[slots], np.arange(ranks)]),
                np.concatenate([np.arange(count), np.full(ranks, count)]),
            ),
        ),
        shape=(ranks, count + 1),
    )
    names, expert = np.unique(experts[slots], return_inverse=True)
    whole = csr_array((np.ones(count), (expert, np.arange(count))), shape=(len(names), count + 1))
    solved = linprog(
        np.append(np.zeros(count), 1.0),
        A_ub=at_most,
        b_ub=-fixed / mean,
        A_eq=whole,
        b_eq=np.ones(len(names)),
        method="highs",
    )
    if solved.x is None:
        raise MoescopeError(f"the solver found no split of a layer: {solved.message}")
    shares = np.clip(solved.x[:count], 0.0, 1.0)
    normalised: FloatArray = shares / np.bincount(expert, shares)[expert]
    return normalised


def _once(load: FloatArray, experts: IntArray, slots: IntArray) -> FloatArray:
    """Tokens of each expert that has several slots, counted once."""
    first = np.unique(experts[slots], return_index=True)[1]
    tokens: FloatArray = load[slots[first]]
    return tokens
