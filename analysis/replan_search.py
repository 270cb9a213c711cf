"""Relieve the hottest rank of each layer, step by step, and log what each step costs and brings.

A step is taken only where every rank that it touches ends below the hottest rank before it. So the maximum
never rises, and fewer ranks are at it: the search ends.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, TypeVar

import numpy as np

from moescope.analysis.replan_layers import (
    NONE,
    BoolArray,
    Layers,
    Moves,
    apply_moves,
    flat_slots,
    start_layers,
)
from moescope.analysis.replan_moves import FREE_MOVE_COUNTS, find_one_transfer, find_swaps
from moescope.analysis.replan_slots import who_holds
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import EMPTY_SLOT

SMALLEST_RELIEF: Final = 1e-4  # of the mean rank load: less is not worth a transfer
MAX_STEPS_PER_SLOT: Final = 2


_Record = TypeVar("_Record", "Layers", "Step")


@dataclass(frozen=True)
class Step:
    """One step in each of some layers.

    Attributes:
        layers: int64 ``[steps]``, rows of the placement, each once.
        places: int64 ``[steps, 2]``, slots that receive; −1 for none.
        experts: int64 ``[steps, 2]``, what they receive; −1 empties the slot.
        moved: int64 ``[steps]``, copies that ranks must receive more than before the step. Negative where an
            expert returns to where it was.
        moved_bytes: float64 ``[steps]``.
        ratio: float64 ``[steps]``, max / mean after the step.
    """

    layers: IntArray
    places: IntArray
    experts: IntArray
    moved: IntArray
    moved_bytes: FloatArray
    ratio: FloatArray


def search_steps(
    tokens: FloatArray, slots: IntArray, expert_bytes: FloatArray, *, most_moved: float, most_bytes: float
) -> list[Step]:
    """Relieve hottest ranks until nothing helps or a layer alone has used up a budget.

    Args:
        tokens: ``[layers, experts]``.
        slots: ``[layers, ranks, slots per rank]``; −1 where empty.
        expert_bytes: ``[layers, experts]``, bytes of one physical expert.
        most_moved: copies that all ranks may receive together.
        most_bytes: the same in bytes.
    """
    home = who_holds(slots, tokens.shape[1])
    layers = start_layers(tokens, slots)
    mean = layers.loads.mean(axis=1)
    spent = np.zeros((2, len(tokens)))
    steps: list[Step] = []
    layers = layers.select((mean > 0) & (slots.shape[1] > 1))
    for _ in range(MAX_STEPS_PER_SLOT * slots[0].size):
        if not len(layers.ids):
            break
        layers, step = _take_step(layers, home, expert_bytes, mean)
        steps.append(step)
        spent[:, step.layers] += step.moved, step.moved_bytes
        goes_on = (spent[0] < most_moved) & (spent[1] < most_bytes)
        layers = layers.select(goes_on[layers.ids])
    return steps


def _take_step(
    layers: Layers, home: BoolArray, expert_bytes: FloatArray, mean: FloatArray
) -> tuple[Layers, Step]:
    """Take the best step that holds when counted exactly; layers without one are dropped."""
    kinds = [*find_one_transfer(layers), find_swaps(layers, home)]
    top = layers.loads.max(axis=1)
    costs = np.stack([_count(layers, moves, home, expert_bytes)[0] for moves in kinds])
    relief = (top - np.stack([moves.peak for moves in kinds])) / np.maximum(costs, FREE_MOVE_COUNTS)
    order = np.argsort(-relief, axis=0, kind="stable")
    stacked = Moves(*(np.stack(parts) for parts in zip(*kinds, strict=True)))
    left = np.arange(len(layers.ids))
    improved, steps = [], []
    for choice in order:
        if not len(left):
            break
        moves = Moves(*(part[choice[left], left] for part in stacked))
        before = layers.select(left) if len(left) < len(layers.ids) else layers
        after = apply_moves(before, moves)
        least = SMALLEST_RELIEF * mean[before.ids]
        helps = np.isfinite(moves.peak) & (_peak_of_change(before, after) < top[left] - least)
        moves = Moves(*(part[helps] for part in moves))
        after = after.select(helps)
        ratio = after.loads.max(axis=1) / mean[after.ids]
        cost = _count(before.select(helps), moves, home, expert_bytes)
        improved.append(after)
        steps.append(Step(after.ids, moves.places, moves.experts, *cost, ratio))
        left = left[~helps]
    return _join(improved), _join(steps)


def _peak_of_change(before: Layers, after: Layers) -> FloatArray:
    """Most tokens on any rank whose load changed; infinite where the hottest rank's did not."""
    changed = np.abs(after.loads - before.loads) > 1e-9 * (before.loads + after.loads)
    peak: FloatArray = np.where(changed, after.loads, 0).max(axis=1)
    peak[~changed[before.rows, before.loads.argmax(axis=1)]] = np.inf
    return peak


def _count(
    layers: Layers, moves: Moves, home: BoolArray, expert_bytes: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Count what ranks must receive more than without the moves: copies and bytes, ``[layers]`` each."""
    flat = flat_slots(layers.slots)
    moved, moved_bytes = np.zeros(len(flat), dtype=np.int64), np.zeros(len(flat))
    for place, expert in zip(moves.places.T, moves.experts.T, strict=True):
        for sign, ids in ((1, expert), (-1, flat[layers.rows, place])):
            rank = place // layers.slots.shape[2]
            comes = (place != NONE) & (ids != EMPTY_SLOT) & ~home[layers.ids, rank, ids]
            moved += sign * comes
            moved_bytes += sign * np.where(comes, expert_bytes[layers.ids, ids], 0)
    return moved, moved_bytes


def _join(parts: list[_Record]) -> _Record:
    if len(parts) == 1:
        return parts[0]
    kind = type(parts[0])
    return kind(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(kind)))
