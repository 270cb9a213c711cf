"""Which transfer relieves the hottest rank of each layer best? All layers at once.

Three kinds are weighed against each other, by relief per transfer:

* *copy*: a slot whose copy is not needed (empty, or of an expert with another copy) receives an expert of the
  hottest rank: 1 transfer;
* *relieve*: a copy on the hottest rank that has another elsewhere makes room for a cold expert: 1 transfer;
* *swap*: the hottest rank and one of the lightest exchange two experts: 2 transfers, or 1 where the light
  rank has an empty slot.

Numpy only: this runs in an engine's environment too.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from moescope.analysis.replan_layers import (
    NONE,
    BoolArray,
    Hottest,
    Layers,
    Moves,
    find_hottest,
    flat_slots,
    gather,
)
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import EMPTY_SLOT

LIGHT_RANKS: Final = 16
SPARE_SLOTS: Final = 8
FREE_MOVE_COUNTS: Final = 0.25  # of a transfer, so that moves without a transfer compare by relief


def find_one_transfer(layers: Layers) -> tuple[Moves, Moves]:
    """Find the best moves of the kinds *copy* and *relieve*."""
    hottest = find_hottest(layers)
    copies = gather(layers.copies, layers.slots)
    is_spare = (layers.slots == EMPTY_SLOT) | (copies > 1)
    peak_of_others = _peak_of_others(layers, hottest.rank, is_spare)
    return (
        _find_copies(layers, hottest, is_spare, peak_of_others),
        _find_relief(layers, hottest, is_spare, peak_of_others),
    )


def _find_copies(layers: Layers, hottest: Hottest, is_spare: BoolArray, peak_of_others: FloatArray) -> Moves:
    """Find the best extra copy of an expert of the hottest rank, in a slot that can be spared."""
    rows, width = layers.rows, layers.slots.shape[2]
    copies = gather(layers.copies, hottest.slots)
    share = gather(layers.tokens, hottest.slots) / (copies + 1)
    times = (hottest.slots[:, :, None] == hottest.slots[:, None, :]).sum(axis=2)
    relieved = hottest.load[:, None] - times * (hottest.copy_loads - share)

    is_on_hot = np.zeros(layers.tokens.shape, dtype=np.bool_)
    row, slot = np.nonzero(hottest.slots != EMPTY_SLOT)
    is_on_hot[row, hottest.slots[row, slot]] = True
    usable = is_spare & (gather(is_on_hot, layers.slots) == 0)
    usable[rows, hottest.rank] = False
    left = layers.loads[:, :, None] - layers.copy_loads
    key = flat_slots(np.where(usable, np.maximum(left, peak_of_others), np.inf))
    is_duplicate = flat_slots(_is_duplicate(layers))
    first = np.where(is_duplicate & np.isfinite(key), key - 2 * hottest.load[:, None], key)
    few = np.argpartition(first, min(SPARE_SLOTS, first.shape[1]) - 1, axis=1)[:, :SPARE_SLOTS]
    left, others = flat_slots(left)[rows[:, None], few], flat_slots(peak_of_others)[rows[:, None], few]

    # [layers, experts of the hottest rank, spare slots]
    peaks = np.maximum(relieved[:, :, None], left[:, None, :] + share[:, :, None])
    peaks = np.maximum(peaks, others[:, None, :])
    on_rank = layers.slots[rows[:, None], few // width]
    is_held = (hottest.slots[:, :, None, None] == on_rank[:, None]).any(axis=3)
    is_usable = np.isfinite(key[rows[:, None], few])
    peaks[is_held | ~is_usable[:, None, :] | (hottest.slots == EMPTY_SLOT)[:, :, None]] = np.inf
    # A second copy on one rank serves nobody: those slots are used up before others.
    repeats = np.where(is_duplicate[rows[:, None], few][:, None, :], peaks, np.inf)
    helps = repeats.min(axis=(1, 2)) < hottest.load
    peaks[helps] = repeats[helps]
    item, spare = np.unravel_index(flat_slots(peaks).argmin(axis=1), peaks.shape[1:])
    return _one_transfer(peaks[rows, item, spare], few[rows, spare], hottest.slots[rows, item])


def _find_relief(layers: Layers, hottest: Hottest, is_spare: BoolArray, peak_of_others: FloatArray) -> Moves:
    """Find the best copy on the hottest rank to give its slot to a cold expert."""
    rows, width = layers.rows, layers.slots.shape[2]
    is_held = (layers.cold[:, :, None] == hottest.slots[:, None, :]).any(axis=2)
    cold = layers.cold[rows, is_held.argmin(axis=1)]
    share = layers.tokens[rows, cold] / (layers.copies[rows, cold] + 1)
    peak = np.maximum(
        hottest.load[:, None] - hottest.copy_loads + share[:, None], peak_of_others[rows, hottest.rank]
    )
    is_allowed = is_spare[rows, hottest.rank] & (hottest.slots != EMPTY_SLOT) & ~is_held.all(axis=1)[:, None]
    peak = np.where(is_allowed, peak, np.inf)
    slot = peak.argmin(axis=1)
    return _one_transfer(peak[rows, slot], hottest.rank * width + slot, cold)


def find_swaps(layers: Layers, home: BoolArray) -> Moves:
    """Find the best exchange between the hottest rank and one of the lightest.

    Args:
        layers: the layers to search.
        home: bool ``[rows of the placement, ranks, experts]``, who holds what before any move.
    """
    hottest = find_hottest(layers)
    rows, (num_ranks, width) = layers.rows, layers.slots.shape[1:]
    few = min(LIGHT_RANKS, num_ranks - 1)
    light = np.argsort(layers.loads, axis=1, kind="stable")[:, :few]  # the hottest is the last or as light
    light_slots = layers.slots[rows[:, None], light]
    is_same = hottest.slots[:, :, None, None] == light_slots[:, None]
    goes = ~is_same.any(axis=3) & (hottest.slots != EMPTY_SLOT)[:, :, None]
    comes = ~is_same.any(axis=1) | (light_slots == EMPTY_SLOT)
    # The load that changes ranks relieves by itself up to half the gap between them, and less beyond.
    gap = (hottest.load[:, None] - layers.loads[rows[:, None], light]) / 2
    given = np.where(goes, hottest.copy_loads[:, :, None] - gap[:, None], np.inf).astype(np.float32)
    taken = np.where(comes, layers.copy_loads[rows[:, None], light], -np.inf).astype(np.float32)
    # [layers, slots of the hottest rank, light ranks, their slots]
    worth = given[:, :, :, None] - taken[:, None]
    np.abs(worth, out=worth)
    np.subtract(gap.astype(np.float32)[:, None, :, None], worth, out=worth)
    going, coming = _swap_costs(layers, hottest, light, home)
    worth /= np.maximum(going[:, :, :, None] + coming[:, None], np.float32(FREE_MOVE_COUNTS))
    item, rank, slot = np.unravel_index(flat_slots(worth).argmax(axis=1), worth.shape[1:])
    change = hottest.copy_loads[rows, item] - layers.copy_loads[rows[:, None], light][rows, rank, slot]
    peak = hottest.load - gap[rows, rank] + np.abs(change - gap[rows, rank])
    peak[~(goes[rows, item, rank] & comes[rows, rank, slot])] = np.inf
    places = np.stack([light[rows, rank] * width + slot, hottest.rank * width + item], axis=1)
    experts = np.stack([hottest.slots[rows, item], light_slots[rows, rank, slot]], axis=1)
    return Moves(peak, places, experts)


def _swap_costs(
    layers: Layers, hottest: Hottest, light: IntArray, home: BoolArray
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Count what each half of an exchange moves more: −1, 0 or 1.

    An expert that was moved before moves on for nothing, and back home it makes up for another.

    Returns:
        float32 ``[layers, slots of the hottest rank, light ranks]`` of what goes, and
        float32 ``[layers, light ranks, their slots]`` of what comes.
    """
    ids, hot, to = layers.ids[:, None, None], hottest.rank[:, None, None], light[:, None, :]
    light_slots = layers.slots[layers.rows[:, None], light]
    goes = hottest.slots[:, :, None]
    going = home[ids, hot, goes].astype(np.float32) - home[ids, to, goes]
    coming = home[ids, light[:, :, None], light_slots].astype(np.float32) - home[ids, hot, light_slots]
    return going, np.where(light_slots == EMPTY_SLOT, np.float32(0), coming)


def _is_duplicate(layers: Layers) -> BoolArray:
    """Which slots hold what an earlier slot of the rank holds: bool like the slots."""
    duplicate = np.zeros(layers.slots.shape, dtype=np.bool_)
    some = np.flatnonzero(layers.has_duplicates)
    slots = layers.slots[some]
    order = np.argsort(slots, axis=2, kind="stable")
    ordered = np.take_along_axis(slots, order, axis=2)
    repeats = np.zeros(ordered.shape, dtype=np.bool_)
    repeats[:, :, 1:] = (ordered[:, :, 1:] == ordered[:, :, :-1]) & (ordered[:, :, 1:] != EMPTY_SLOT)
    layer, rank, position = np.nonzero(repeats)
    duplicate[some[layer], rank, order[layer, rank, position]] = True
    return duplicate


def _peak_of_others(layers: Layers, hottest_rank: IntArray, is_spare: BoolArray) -> FloatArray:
    """Most tokens on a rank that keeps a copy when one copy goes: float64 like the slots, 0 where empty.

    An upper bound: the rank that gives its copy is counted with the others, the hottest rank is not.
    """
    loads = layers.loads.copy()
    loads[layers.rows, hottest_rank] = 0
    layer, rank, slot = np.nonzero(is_spare & (layers.slots != EMPTY_SLOT))
    expert = layers.slots[layer, rank, slot]
    peak = np.zeros(layers.tokens.shape)
    np.maximum.at(peak, (layer, expert), loads[layer, rank])
    copies = layers.copies[layer, expert]
    of_slot = np.zeros(layers.slots.shape)
    more = layers.tokens[layer, expert] / (copies * (copies - 1))
    of_slot[layer, rank, slot] = peak[layer, expert] + more
    return of_slot


def _one_transfer(peak: FloatArray, place: IntArray, expert: IntArray) -> Moves:
    none = np.full(len(place), NONE)
    return Moves(peak, np.stack([place, none], axis=1), np.stack([expert, none], axis=1))
