"""A comparison in sentences: the verdict first, then what differs, then what does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.comparison import Comparison, NumberChange, Series, Unit
from moescope.analysis.comparison_load import LoadComparison
from moescope.analysis.comparison_series import Change

UNKNOWN: Final = "–"
_MANY: Final = 3
_MOST_SAID: Final = 6


def verdict(comparison: Comparison) -> str:
    """One sentence: whether A is worse than B, and in what; the numbers are in the ones that follow."""
    worse = [one for one in comparison.numbers if one.is_worse]
    better = [one for one in comparison.numbers if one.is_better]
    other = [one for one in comparison.numbers if one.change.is_beyond_noise and one not in worse + better]
    load = comparison.load
    moved = 0 if load is None else int(load.drift.is_significant.sum())
    if not worse and not better and not other and not moved:
        if all(one.change is Change.TOO_LITTLE_DATA for one in comparison.numbers):
            return "There is too little data to tell A from B."
        return "A and B are the same within noise."
    parts = []
    if worse:
        parts.append(f"worse than B in {_named(worse)}")
    if better:
        parts.append(f"better in {_named(better)}" if worse else f"better than B in {_named(better)}")
    if not parts and other:
        parts.append(f"different from B in {_named(other)}")
    if not parts:
        parts.append("not beyond noise of B in any number")
    text = f"A is {' and '.join(parts)}"
    if load is not None and moved:
        text += f"; it uses its experts differently in {moved} of {words.count(len(load.layers), 'layer')}"
    return f"{text}."


def list_sentences(comparison: Comparison) -> Iterator[str]:
    """What differs beyond noise, one sentence each, and at the end what does not."""
    changed = [one for one in comparison.numbers if one.change.is_beyond_noise]
    for one in changed[:_MOST_SAID]:
        yield number_sentence(one)
    if len(changed) > _MOST_SAID:
        rest = ", ".join(one.quantity.name for one in changed[_MOST_SAID:])
        yield f"Also beyond noise: {rest}."
    if comparison.load is not None:
        yield from load_sentences(comparison.load)
    same = [one for one in comparison.numbers if one.change is Change.WITHIN_NOISE]
    if same:
        yield f"The same within noise: {', '.join(one.quantity.name for one in same)}."
    blind = [one for one in comparison.numbers if one.change is Change.TOO_LITTLE_DATA]
    if blind:
        yield (
            f"Too little data to tell: {', '.join(one.quantity.name for one in blind)}. "
            "Longer windows have more minutes to compare."
        )


def number_sentence(one: NumberChange) -> str:
    """As in ``TTFT p99 is 1.20 s, 0.40 s in B: 3.00 ×``, and a full stop."""
    times = one.times
    much = "" if np.isnan(times) else f": {times:.2f} ×" if times < 10 else f": {words.compact(times)} ×"
    return f"{one.quantity.name} is {amount(one, one.a)}, {amount(one, one.b)} in B{much}."


def amount(one: NumberChange, series: Series | None) -> str:
    """A number of one window as it is read."""
    return UNKNOWN if series is None else _in_words(one.quantity.unit, series.whole)


def difference(one: NumberChange) -> str:
    """A − B as it is read, with its sign."""
    if one.a is None or one.b is None:
        return UNKNOWN
    by = one.a.whole - one.b.whole
    if np.isnan(by):
        return UNKNOWN
    sign = "+" if by > 0 else "−" if by < 0 else "±"
    if one.quantity.unit is Unit.SHARE:
        return f"{sign}{100 * abs(by):.1f} points"
    return f"{sign}{_in_words(one.quantity.unit, abs(by))}"


def load_sentences(load: LoadComparison) -> Iterator[str]:
    """What differs in the load: layers, balance, ranks, experts, placement."""
    drifted = load.drift.is_significant
    if drifted.any():
        row = int(np.nanargmax(load.drift.net_variation))
        layers = words.count(len(load.layers), "layer")
        yield (
            f"Experts are used differently in {int(drifted.sum())} of {layers}, "
            f"most in layer {load.layers[row]}: {words.percent(float(load.drift.net_variation[row]))} of its "
            "assignments go to other experts, beyond noise."
        )
    elif np.isfinite(load.drift.p_value).any():
        yield "No layer uses its experts differently."
    if len(load.experts):
        layer, expert = int(load.experts.layers[0]), int(load.experts.experts[0])
        now, then = float(load.experts.share_of_a[0]), float(load.experts.share_of_b[0])
        yield (
            f"The share of {words.integer(len(load.experts))} of "
            f"{words.count(load.experts.compared, 'expert')} in their layer is another, most that of expert "
            f"{expert} of layer {layer}: {words.percent(now)}, {words.percent(then)} in B."
        )
    yield from _balance_sentences(load)
    if load.moved_copies:
        yield f"The placement is another: {words.copies(load.moved_copies)} on other ranks."


def _balance_sentences(load: LoadComparison) -> Iterator[str]:
    balance, ranks = load.balance, load.ranks
    if balance is not None and balance.is_beyond_noise.any():
        row = int(np.where(balance.is_beyond_noise, np.abs(balance.difference), -1).argmax())
        yield (
            f"The balance over ranks is worse in {words.count(balance.num_higher, 'layer')} and better in "
            f"{balance.num_lower}; layer {balance.labels[row]} differs most: max / mean "
            f"{balance.of_a[row]:.2f}, {balance.of_b[row]:.2f} in B, net of noise."
        )
    elif balance is not None:
        yield "The balance over ranks is the same in every layer within noise."
    if ranks is not None and ranks.is_beyond_noise.any():
        row = int(np.where(ranks.is_beyond_noise, np.abs(ranks.difference), -1).argmax())
        yield (
            f"More of the work is on {words.count(ranks.num_higher, 'rank')} and less on {ranks.num_lower}; "
            f"rank {ranks.labels[row]} differs most: {ranks.of_a[row]:.3f} × the mean rank's, "
            f"{ranks.of_b[row]:.3f} × in B."
        )


def _in_words(unit: Unit, value: float) -> str:
    if np.isnan(value):
        return UNKNOWN
    if unit is Unit.SECONDS:
        return words.seconds(value)
    return words.percent(value) if unit is Unit.SHARE else f"{words.compact(value)} a second"


def _named(changes: list[NumberChange]) -> str:
    names = [one.quantity.name for one in changes]
    shown, rest = names[:_MANY], len(names) - _MANY
    last = [f"{rest} more"] if rest > 0 else [shown.pop()] if len(shown) > 1 else []
    return " and ".join([", ".join(shown), *last])
