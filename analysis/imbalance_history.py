"""Imbalance over time: which layers stay imbalanced, and since when."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis.expert_load import ExpertLoadWindow
from moescope.analysis.frozen import lock, locked_int64
from moescope.analysis.imbalance import BoolArray, Imbalance, compute_rank_loads, judge_imbalance
from moescope.analysis.load_windows import LoadWindows
from moescope.analysis.placement import PlacementSnapshot, read_placement
from moescope.analysis.store import Store
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.settings import Settings

_NEVER: Final = -1


@dataclass(frozen=True, slots=True)
class ImbalanceHistory:
    """The balance of each layer in each of several windows, the oldest first; read-only.

    Attributes:
        starts_ms: int64 ``[windows]``, Unix milliseconds.
        seconds: length of a window.
        net_ratio: float64 ``[windows, layers]``, max / mean net of the noise floor; NaN without a verdict.
        is_imbalanced: bool ``[windows, layers]``.
    """

    starts_ms: IntArray
    seconds: float
    net_ratio: FloatArray
    is_imbalanced: BoolArray

    @property
    def num_judged(self) -> IntArray:
        """Windows in which each layer has a verdict: int64 ``[layers]``."""
        judged: IntArray = (~np.isnan(self.net_ratio)).sum(axis=0)
        return judged

    @property
    def num_imbalanced(self) -> IntArray:
        """Windows in which each layer is imbalanced: int64 ``[layers]``."""
        imbalanced: IntArray = self.is_imbalanced.sum(axis=0)
        return imbalanced

    @property
    def since_ms(self) -> IntArray:
        """Start of the first window from which on each layer was never found balanced: int64 ``[layers]``.

        Windows without a verdict neither end nor begin such a time. −1 for a layer whose newest verdict is
        not that it is imbalanced.
        """
        is_fine = ~np.isnan(self.net_ratio) & ~self.is_imbalanced
        since = np.full(self.net_ratio.shape[1], _NEVER, dtype=np.int64)
        is_open = np.ones(len(since), dtype=np.bool_)
        for start, fine, imbalanced in zip(
            self.starts_ms[::-1], is_fine[::-1], self.is_imbalanced[::-1], strict=True
        ):
            is_open &= ~fine
            since[is_open & imbalanced] = start
        return since

    @property
    def is_lasting(self) -> BoolArray:
        """Imbalanced in every window with a verdict, of which there are two at least: bool ``[layers]``."""
        lasting: BoolArray = (self.num_judged >= 2) & (self.num_imbalanced == self.num_judged)
        return lasting


def judge_windows(
    windows: LoadWindows,
    layers: IntArray,
    placements: Sequence[PlacementSnapshot | None],
    design_effect: FloatArray,
    settings: Settings,
) -> ImbalanceHistory:
    """Judge every window with the placement of its time.

    Args:
        windows: may know other layers.
        layers: int64 ``[layers]``, the model's layer indices that are asked for, increasing.
        placements: one a window, on the axis of ``layers``; None where no rank had reported one.
        design_effect: float64 ``[layers]``.
        settings: thresholds.
    """
    tokens = select_layers(windows, layers)
    shape = tokens.shape[:2]
    net, imbalanced = np.full(shape, np.nan), np.zeros(shape, dtype=np.bool_)
    for position, placement in enumerate(placements):
        if placement is None:
            continue
        judged = _judge(tokens[position], placement, design_effect, settings)
        net[position] = np.where(judged.has_verdict, judged.net_ratio, np.nan)
        imbalanced[position] = judged.is_imbalanced
    return ImbalanceHistory(windows.starts_ms, windows.seconds, lock(net), lock(imbalanced))


def select_layers(windows: LoadWindows, layers: IntArray) -> IntArray:
    """Tokens ``[windows, layers, experts]`` of these layers; zeros where the windows know none."""
    tokens = np.zeros((len(windows.starts_ms), len(layers), windows.tokens.shape[2]), dtype=np.int64)
    known, ours, theirs = np.intersect1d(layers, windows.layers, return_indices=True)
    if len(known):
        tokens[:, ours] = windows.tokens[:, theirs]
    return locked_int64(tokens)


def read_placements(
    store: Store, window: ExpertLoadWindow, newest: PlacementSnapshot | None, ends_ms: IntArray
) -> tuple[PlacementSnapshot | None, ...]:
    """Read the placement at each of several moments, of which ``newest`` is that of the last.

    Where two moments have the same placement, so have those between them: one is read, or as few as it takes
    to find the changes.

    Raises:
        StoreError: the store cannot answer.
    """
    return find_steps(
        len(ends_ms),
        newest,
        lambda position: read_placement(store, dataclasses.replace(window, end_ms=int(ends_ms[position]))),
    )


def find_steps(
    count: int,
    newest: PlacementSnapshot | None,
    read: Callable[[int], PlacementSnapshot | None],
) -> tuple[PlacementSnapshot | None, ...]:
    """Fill ``count`` positions by bisection: ``newest`` is the last, ``read`` gives the others."""
    found: list[PlacementSnapshot | None] = [newest] * count
    if count > 1:
        found[0] = read(0)
        _fill(found, 0, count - 1, read)
    return tuple(found)


def _fill(
    found: list[PlacementSnapshot | None],
    first: int,
    last: int,
    read: Callable[[int], PlacementSnapshot | None],
) -> None:
    if last - first < 2:
        return
    if _are_same(found[first], found[last]):
        found[first + 1 : last] = [found[last]] * (last - first - 1)
        return
    middle = (first + last) // 2
    found[middle] = read(middle)
    _fill(found, first, middle, read)
    _fill(found, middle, last, read)


def _are_same(one: PlacementSnapshot | None, other: PlacementSnapshot | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one.ranks, other.ranks) and np.array_equal(one.replicas, other.replicas)


def _judge(
    tokens: IntArray, placement: PlacementSnapshot, design_effect: FloatArray, settings: Settings
) -> Imbalance:
    return judge_imbalance(
        compute_rank_loads(tokens, placement.replicas),
        design_effect,
        acceptable_ratio=settings.imbalance_ratio,
        min_mean_load=settings.min_mean_rank_load,
    )
