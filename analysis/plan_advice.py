"""Whether a plan is worth its moves: apply it, leave it, or see that only replicas can help."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from scipy.stats import chi2

from moescope.analysis import words
from moescope.analysis.backtest import SMALLEST_GAIN, Backtest, BacktestVerdict
from moescope.analysis.imbalance import BoolArray, subtract_noise_floor
from moescope.schemas.records import FloatArray

_UNEVEN: Final = 0.01
"""How far the bound must be above 1, averaged over layers, to speak of it."""

_LEAST_OF_IT: Final = 0.25
"""Part of what is above 1 that a plan must take away where the rest is bound to stay."""
_FALSE_ALARM: Final = 0.001
_MOST_OF_IT: Final = 0.75
"""Part of a plan's gain from which a small change is worth naming in its place."""


class PlanVerdict(StrEnum):
    """What to do with a plan."""

    APPLY = "apply"
    LEAVE_IT = "leave it"
    ONLY_REPLICAS = "only replicas can help"


@dataclass(frozen=True, slots=True)
class PlanAdvice:
    """The verdict, and a sentence that says why."""

    verdict: PlanVerdict
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanEffect:
    """What a plan does to the load that it was made for, and to later windows where that is known.

    Attributes:
        tokens: ``[layers, experts]``, the load.
        ratio_before, ratio_after, bound: float64 ``[layers]``, max / mean over ranks.
        noise_floor: float64 ``[layers]``, what uniform routing would show; None where loads are no counts.
        is_uneven: bool ``[layers]``, ranks differ by more than chance before the plan.
        ranks: of the group.
        redundant_experts: slots of a layer beyond one per expert that the plan has.
        moved: copies that ranks must receive.
        moved_bytes: None where the size of an expert is not known.
        small_moved, small_ratio: copies that a small change moves instead, and its max / mean, float64
            ``[layers]``; None where there is none.
    """

    tokens: FloatArray
    ratio_before: FloatArray
    ratio_after: FloatArray
    bound: FloatArray
    noise_floor: FloatArray | None
    is_uneven: BoolArray
    ranks: int
    redundant_experts: int
    moved: int
    moved_bytes: float | None
    backtest: Backtest | None
    small_moved: int = 0
    small_ratio: FloatArray | None = None

    def mean(self, per_layer: FloatArray) -> float:
        """Average over the layers that have load; 1 where none has."""
        has_load = self.tokens.any(axis=1)
        return float(per_layer[has_load].mean()) if has_load.any() else 1.0


def advise(effect: PlanEffect) -> PlanAdvice:
    """Judge a plan by its back-test; where there is none, by what noise leaves of its gain on one load.

    ``only replicas can help`` is said where what is left after the plan is what no placement of as many
    slots can avoid: single experts that are more than a rank's share.
    """
    if not effect.tokens.any():
        return PlanAdvice(PlanVerdict.LEAVE_IT, "Leave it: there is no load to balance.")
    verdict = _verdict(effect)
    if verdict is PlanVerdict.APPLY:
        return PlanAdvice(
            verdict, f"Apply it: {_gain(effect)}. {_cost(effect)}{_small(effect)}{_rest(effect)}"
        )
    if verdict is PlanVerdict.ONLY_REPLICAS:
        return PlanAdvice(verdict, f"Only replicas can help: {_why_replicas(effect)}")
    return PlanAdvice(verdict, f"Leave it: {_why_leave(effect)}")


def count_needed_copies(tokens: FloatArray, ranks: int) -> int:
    """Redundant experts with which no single copy is more than a rank's share, in every layer.

    Expert e needs ⌈w_e / mean rank load⌉ copies; rounded up so that every rank has equally many slots.
    """
    total = tokens.sum(axis=1, keepdims=True)
    shares = tokens / np.where(total > 0, total, 1) * ranks
    copies = np.maximum(np.ceil(shares - 1e-9), 1)
    experts = tokens.shape[1]
    needed = int(copies.sum(axis=1).max(initial=experts)) - experts
    return int(-(-(experts + needed) // ranks) * ranks - experts)


def find_uneven(load_per_layer_rank: FloatArray, design_effect: FloatArray) -> BoolArray:
    """Tell the layers whose ranks differ by more than chance: bool ``[layers]``.

    Σ (x − mean)² / (D · mean) over the ranks against χ² with G − 1 degrees of freedom; the chance of one
    false alarm among all layers is :data:`_FALSE_ALARM`.
    """
    layers, ranks = load_per_layer_rank.shape
    mean = load_per_layer_rank.mean(axis=1, keepdims=True)
    squares = ((load_per_layer_rank - mean) ** 2).sum(axis=1)
    expected = np.nan_to_num(design_effect, nan=1.0) * mean[:, 0]
    statistic = np.where(expected > 0, squares / np.where(expected > 0, expected, 1), 0.0)
    uneven: BoolArray = statistic > chi2.isf(_FALSE_ALARM / layers, max(ranks - 1, 1))
    return uneven


def _verdict(effect: PlanEffect) -> PlanVerdict:
    tested = effect.backtest
    if tested is not None and tested.verdict is not BacktestVerdict.TOO_LITTLE_DATA:
        is_worth_it = tested.verdict is BacktestVerdict.WORTH_IT
    else:
        is_worth_it = _net_gain(effect) > SMALLEST_GAIN
    before, after, bound = (
        effect.mean(one) - 1 for one in (effect.ratio_before, effect.ratio_after, effect.bound)
    )
    is_bound = bound > _UNEVEN and 2 * bound > after and bound > _noise(effect)
    if is_worth_it and effect.moved and not (is_bound and before - after < _LEAST_OF_IT * before):
        return PlanVerdict.APPLY
    return PlanVerdict.ONLY_REPLICAS if is_bound else PlanVerdict.LEAVE_IT


def _net_gain(effect: PlanEffect) -> float:
    """Fall of max / mean on the one load that is known, noise taken out of what stands before.

    A layer counts only where its ranks differ by more than chance: the largest of many noisy ratios is above
    its floor now and then, and a plan always smooths the noise that it has seen. A layer that gets worse
    counts in any case.
    """
    before, after = effect.ratio_before, effect.ratio_after
    net = before if effect.noise_floor is None else subtract_noise_floor(before, effect.noise_floor)
    gain = np.where(effect.is_uneven, np.maximum(net - after, 0), 0.0)
    return effect.mean(np.where(after > before, before - after, gain))


def _noise(effect: PlanEffect) -> float:
    return 0.0 if effect.noise_floor is None else effect.mean(effect.noise_floor) - 1


def _gain(effect: PlanEffect) -> str:
    over = f"max / mean over {effect.ranks} ranks"
    tested = effect.backtest
    if tested is None or tested.verdict is not BacktestVerdict.WORTH_IT:
        before, after = effect.mean(effect.ratio_before), effect.mean(effect.ratio_after)
        return (
            f"{over} falls from {before:.2f} to {after:.2f} on this load (mean of the layers); later traffic "
            "differs, and too few windows are known to say by how much"
        )
    return (
        f"{over} falls from {np.nanmean(tested.ratio_before):.2f} to {np.nanmean(tested.ratio_after):.2f} in "
        f"windows that it was not planned from, {tested.net_gain:.2f} of it beyond noise"
    )


def _cost(effect: PlanEffect) -> str:
    size = "" if effect.moved_bytes is None else f" ({words.si_bytes(effect.moved_bytes)})"
    return f"It moves {words.integer(effect.moved)} {'copy' if effect.moved == 1 else 'copies'}{size}."


def _small(effect: PlanEffect) -> str:
    """A hint at a small change that brings nearly all of it."""
    if effect.small_ratio is None or effect.small_moved >= effect.moved:
        return ""
    before, small = effect.mean(effect.ratio_before), effect.mean(effect.small_ratio)
    if before - small < _MOST_OF_IT * (before - effect.mean(effect.ratio_after)):
        return ""
    moved = words.integer(effect.small_moved)
    return f" --max-moved 5% moves {moved} and gets to {small:.2f} on this load."


def _rest(effect: PlanEffect) -> str:
    needed = count_needed_copies(effect.tokens, effect.ranks)
    if effect.mean(effect.bound) - 1 <= _UNEVEN or needed <= effect.redundant_experts:
        return ""
    return f" Below {effect.mean(effect.bound):.2f} takes more replicas: --redundant-experts {needed}."


def _why_replicas(effect: PlanEffect) -> str:
    bound = effect.mean(effect.bound)
    needed = count_needed_copies(effect.tokens, effect.ranks)
    text = (
        f"no placement with {effect.redundant_experts} redundant experts gets max / mean below {bound:.2f} "
        f"(now {effect.mean(effect.ratio_before):.2f})"
    )
    if needed <= effect.redundant_experts:
        return f"{text} under these rules; fewer rules would."
    return (
        f"{text}, mean of the layers, for single experts are more than a rank's share. "
        f"--redundant-experts {needed} would let it reach 1."
    )


def _why_leave(effect: PlanEffect) -> str:
    before, floor = effect.mean(effect.ratio_before), 1 + _noise(effect)
    tested = effect.backtest
    if not effect.moved:
        return f"max / mean is {before:.2f}, and the plan moves nothing."
    if tested is not None and tested.verdict is not BacktestVerdict.TOO_LITTLE_DATA:
        change = f"{np.nanmean(tested.ratio_before):.2f} to {np.nanmean(tested.ratio_after):.2f}"
        return (
            f"in windows that it was not planned from the plan takes max / mean from {change}, "
            f"{max(tested.net_gain, 0):.2f} of it beyond noise; that is not worth moving "
            f"{words.integer(effect.moved)} copies."
        )
    after = effect.mean(effect.ratio_after)
    if before > 1 + SMALLEST_GAIN and after > before - SMALLEST_GAIN:
        return f"max / mean is {before:.2f}, and the plan, under its rules, is no better: {after:.2f}."
    return (
        f"max / mean is {before:.2f}, and routing by chance alone would show {floor:.2f} with so few tokens; "
        "what a plan seems to gain is noise. Count for longer."
        if floor > 1 + SMALLEST_GAIN
        else f"max / mean is {before:.2f} already."
    )
