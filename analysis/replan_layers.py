"""The layers that a re-plan is still searching, all at once, and moves between their slots."""

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
        if which.dtype == np.bool_ and which.all():
            return self
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


class Hottest(NamedTuple):
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
    copy_loads = gather(tokens / np.maximum(copies, 1), slots)
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
    copy_loads = gather(layers.tokens / np.maximum(copies, 1), slots)
    return replace(layers, slots=slots, copies=copies, copy_loads=copy_loads, loads=copy_loads.sum(axis=2))


def gather(values: np.ndarray, slots: IntArray) -> FloatArray:
    """Look up ``[layers, experts]`` at slots ``[layers, …]``; 0 where empty."""
    flat = flat_slots(slots)
    found = np.take_along_axis(values, np.maximum(flat, 0), axis=1)
    gathered: FloatArray = np.where(flat == EMPTY_SLOT, 0, found).reshape(slots.shape)
    return gathered


def find_hottest(layers: Layers) -> Hottest:
    """Look the hottest rank of each layer up."""
    rank, rows = layers.loads.argmax(axis=1), layers.rows
    return Hottest(rank, layers.slots[rows, rank], layers.copy_loads[rows, rank], layers.loads[rows, rank])
