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

import math
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import EMPTY_SLOT

BoolArray: TypeAlias = npt.NDArray[np.bool_]
_Array = TypeVar("_Array", bound=npt.NDArray[Any])

NONE: Final = -1
LIGHT_RANKS: Final = 16
SPARE_SLOTS: Final = 16
COLD_EXPERTS: Final = 16


@dataclass(frozen=True)
class Layers:
    """The layers still searched. Arrays are replaced, never changed in place.

    Attributes:
        ids: int64 ``[layers]``, rows of the placement.
        slots: int64 ``[layers, ranks, slots per rank]``, logical experts, −1 where empty.
        tokens: float64 ``[layers, experts]``.
        copies: int64 ``[layers, experts]``.
        cold: int64 ``[layers, few]``, the layer's experts with the fewest tokens, coldest first.
        copy_loads: float64 ``[layers, ranks, slots per rank]``, tokens of each slot; 0 where empty.
        loads: float64 ``[layers, ranks]``.
        has_duplicates: bool ``[layers]``, whether copies shared a rank at the start; none are added.
    """

    ids: IntArray
    slots: IntArray
    tokens: FloatArray
    copies: IntArray
    cold: IntArray
    copy_loads: FloatArray
    loads: FloatArray
    has_duplicates: BoolArray

    @property
    def rows(self) -> IntArray:
        """Positions along the layers, 0, 1, 2 …: int64 ``[layers]``."""
        return np.arange(len(self.ids))

    def select(self, which: BoolArray | IntArray) -> Layers:
        """Keep some of the layers."""
        return Layers(*(getattr(self, name)[which] for name in self.__dataclass_fields__))


class Moves(NamedTuple):
    """One move per layer.

    Attributes:
        peak: float64 ``[layers]``, most tokens on any rank that the move touches; infinite without a move.
        places: int64 ``[layers, 2]``, slots that receive, counted over all ranks; −1 for none.
        experts: int64 ``[layers, 2]``, what they receive; −1 makes a slot empty.
    """

    peak: FloatArray
    places: IntArray
    experts: IntArray


class _Hottest(NamedTuple):
    """The hottest rank of each layer, its slots, their tokens and its tokens; ``[layers, …]``."""

    rank: IntArray
    slots: IntArray
    copy_loads: FloatArray
    load: FloatArray


def start_layers(tokens: FloatArray, slots: IntArray) -> Layers:
    """Lay out all layers: tokens ``[layers, experts]``, slots ``[layers, ranks, slots per rank]``."""
    num_layers, num_experts = tokens.shape
    held = slots.reshape(num_layers, -1)
    copies = np.zeros((num_layers, num_experts), dtype=np.int64)
    layer, slot = np.nonzero(held != EMPTY_SLOT)
    np.add.at(copies, (layer, held[layer, slot]), 1)
    cold = np.argsort(tokens, axis=1, kind="stable")[:, :COLD_EXPERTS]
    ordered = np.sort(slots, axis=2)
    is_repeat = (ordered[:, :, 1:] == ordered[:, :, :-1]) & (ordered[:, :, 1:] != EMPTY_SLOT)
    copy_loads = _gather(tokens / np.maximum(copies, 1), slots)
    return Layers(
        np.arange(num_layers),
        slots,
        tokens,
        copies,
        cold,
        copy_loads,
        copy_loads.sum(axis=2),
        is_repeat.any(axis=(1, 2)),
    )


def flat_slots(values: _Array) -> _Array:
    """Put all axes but the first into one: ``[layers, …]`` to ``[layers, slots]``, also without layers."""
    flat: Any = values.reshape(len(values), math.prod(values.shape[1:]))
    return flat  # type: ignore[no-any-return]  # numpy's types lose the dtype here


def apply_moves(layers: Layers, moves: Moves) -> Layers:
    """Return the layers after one move each."""
    slots = flat_slots(layers.slots).copy()
    copies = layers.copies.copy()
    for place, expert in zip(moves.places.T, moves.experts.T, strict=True):
        row = np.flatnonzero(place != NONE)
        before, after = slots[row, place[row]], expert[row]
        slots[row, place[row]] = after
        for change, ids in ((-1, before), (1, after)):
            held = ids != EMPTY_SLOT
            np.add.at(copies, (row[held], ids[held]), change)
    slots = slots.reshape(layers.slots.shape)
    copy_loads = _gather(layers.tokens / np.maximum(copies, 1), slots)
    return replace(layers, slots=slots, copies=copies, copy_loads=copy_loads, loads=copy_loads.sum(axis=2))


def find_one_transfer(layers: Layers) -> tuple[Moves, Moves]:
    """Find the best moves of the kinds *copy* and *relieve*."""
    hottest = _hottest(layers)
    copies = _gather(layers.copies, layers.slots)
    is_spare = (layers.slots == EMPTY_SLOT) | (copies > 1)
    peak_of_others = _peak_of_others(layers, hottest.rank)
    return (
        _find_copies(layers, hottest, is_spare, peak_of_others),
        _find_relief(layers, hottest, is_spare, peak_of_others),
    )


def _find_copies(layers: Layers, hottest: _Hottest, is_spare: BoolArray, peak_of_others: FloatArray) -> Moves:
    """Find the best extra copy of an expert of the hottest rank, in a slot that can be spared."""
    rows, width = layers.rows, layers.slots.shape[2]
    copies = _gather(layers.copies, hottest.slots)
    share = _gather(layers.tokens, hottest.slots) / (copies + 1)
    times = (hottest.slots[:, :, None] == hottest.slots[:, None, :]).sum(axis=2)
    relieved = hottest.load[:, None] - times * (hottest.copy_loads - share)

    is_on_hot = np.zeros(layers.tokens.shape, dtype=np.bool_)
    row, slot = np.nonzero(hottest.slots != EMPTY_SLOT)
    is_on_hot[row, hottest.slots[row, slot]] = True
    usable = is_spare & (_gather(is_on_hot, layers.slots) == 0)
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


def _find_relief(layers: Layers, hottest: _Hottest, is_spare: BoolArray, peak_of_others: FloatArray) -> Moves:
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


def find_swaps(layers: Layers) -> Moves:
    """Find the best exchange between the hottest rank and one of the lightest."""
    hottest = _hottest(layers)
    rows, (num_ranks, width) = layers.rows, layers.slots.shape[1:]
    few = min(LIGHT_RANKS, num_ranks - 1)
    light = np.argsort(layers.loads, axis=1, kind="stable")[:, :few]  # the hottest is the last or as light
    light_slots = layers.slots[rows[:, None], light]
    # [layers, slots of the hottest rank, light ranks, their slots]
    shift = hottest.copy_loads[:, :, None, None] - layers.copy_loads[rows[:, None], light][:, None]
    light_loads = layers.loads[rows[:, None], light]
    gap = ((hottest.load[:, None] - light_loads) / 2)[:, None, :, None]
    peaks = np.abs(shift - gap) + (hottest.load[:, None] - gap[:, 0, :, 0])[:, None, :, None]
    is_same = hottest.slots[:, :, None, None] == light_slots[:, None]
    goes = ~is_same.any(axis=3) & (hottest.slots != EMPTY_SLOT)[:, :, None]
    comes = ~is_same.any(axis=1) | (light_slots == EMPTY_SLOT)
    peaks[~(goes[:, :, :, None] & comes[:, None])] = np.inf
    # A move into an empty slot is half as dear: its relief counts twice.
    times = np.where(light_slots == EMPTY_SLOT, 2, 1)[:, None]
    best = flat_slots((peaks - hottest.load[:, None, None, None]) * times).argmin(axis=1)
    peaks = flat_slots(peaks)
    item, rank, slot = np.unravel_index(best, (width, few, width))
    places = np.stack([light[rows, rank] * width + slot, hottest.rank * width + item], axis=1)
    experts = np.stack([hottest.slots[rows, item], light_slots[rows, rank, slot]], axis=1)
    return Moves(peaks[rows, best], places, experts)


def _gather(values: np.ndarray, slots: IntArray) -> FloatArray:
    """Look up ``[layers, experts]`` at slots ``[layers, …]``; 0 where empty."""
    flat = flat_slots(slots)
    found = np.take_along_axis(values, np.maximum(flat, 0), axis=1)
    gathered: FloatArray = np.where(flat == EMPTY_SLOT, 0, found).reshape(slots.shape)
    return gathered


def _hottest(layers: Layers) -> _Hottest:
    rank, rows = layers.loads.argmax(axis=1), layers.rows
    return _Hottest(rank, layers.slots[rows, rank], layers.copy_loads[rows, rank], layers.loads[rows, rank])


def _is_duplicate(layers: Layers) -> BoolArray:
    """Which slots hold what an earlier slot of the rank holds: bool like the slots."""
    if not layers.has_duplicates.any():
        return np.zeros(layers.slots.shape, dtype=np.bool_)
    order = np.argsort(layers.slots, axis=2, kind="stable")
    ordered = np.take_along_axis(layers.slots, order, axis=2)
    repeats = np.zeros(ordered.shape, dtype=np.bool_)
    repeats[:, :, 1:] = (ordered[:, :, 1:] == ordered[:, :, :-1]) & (ordered[:, :, 1:] != EMPTY_SLOT)
    duplicate = np.zeros_like(repeats)
    np.put_along_axis(duplicate, order, repeats, axis=2)
    return duplicate


def _peak_of_others(layers: Layers, hottest_rank: IntArray) -> FloatArray:
    """Most tokens on a rank that keeps a copy when one copy goes: float64 like the slots.

    An upper bound: the rank that gives its copy is counted with the others, the hottest rank is not.
    """
    loads = layers.loads.copy()
    loads[layers.rows, hottest_rank] = 0
    num_layers, num_experts = layers.tokens.shape
    flat = flat_slots(layers.slots)
    held = flat != EMPTY_SLOT
    of_slot = np.repeat(loads, layers.slots.shape[2], axis=1)
    peak = np.zeros(num_layers * num_experts)
    np.maximum.at(peak, (layers.rows[:, None] * num_experts + flat)[held], of_slot[held])
    peak = peak.reshape(num_layers, num_experts)
    more = layers.tokens / np.maximum(layers.copies * (layers.copies - 1), 1)
    return _gather(peak + more, layers.slots)


def _one_transfer(peak: FloatArray, place: IntArray, expert: IntArray) -> Moves:
    none = np.full(len(place), NONE)
    return Moves(peak, np.stack([place, none], axis=1), np.stack([expert, none], axis=1))
