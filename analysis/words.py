"""Numbers as people read them, in one spelling for pages, reports and findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_LONG: Final = 10
"""From so many of a larger unit on, the larger one reads better."""
_MAX_LISTED: Final = 6
_TICK_STEPS: Final = (0.25, 0.5, 1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500)
_SCALES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BARS: Final = "▁▂▃▄▅▆▇█"
_NO_BAR: Final = "·"
_THIN_SPACE: Final = "\N{NARROW NO-BREAK SPACE}"


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h``, ``2 days``: one unit, rounded."""
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.0f} h"
    return f"{seconds / _DAY:.0f} days"


def percent(share: float) -> str:
    """``83 %``; more digits where there is less: ``1.4 %``, ``0.02 %``."""
    value = 100 * share
    digits = 0 if value >= 10 or value == 0 else 1 if value >= 1 else 2
    return f"{value:.{digits}f} %"


def integer(value: int) -> str:
    """``1 234 567``, with narrow spaces that do not break."""
    return f"{value:,}".replace(",", _THIN_SPACE)


def compact(value: float) -> str:
    """Three digits and an SI prefix: ``7``, ``0.25``, ``12.3 k``, ``4.56 M``."""
    rounded = float(f"{value:.3g}")
    scale, prefix = next(((s, p) for s, p in _SCALES if abs(rounded) >= s), (1.0, ""))
    scaled = rounded / scale
    is_whole = scale == 1 and scaled == round(scaled)
    digits = 0 if is_whole or abs(scaled) >= 100 else 1 if abs(scaled) >= 10 else 2
    return f"{scaled:.{digits}f} {prefix}".rstrip()


def si_bytes(value: float) -> str:
    """``13 B``, ``1.50 kB``, ``79.0 GB``: three digits, powers of 1000 as links are rated."""
    text = compact(value)
    return f"{text}B" if " " in text else f"{text} B"


def seconds(value: float) -> str:
    """``23.4 ms``, ``1.20 s``, ``51.3 min``, ``2.25 h``: three digits, whichever unit reads best."""
    for span, name in ((_HOUR, "h"), (_MINUTE, "min")):
        if value >= _LONG * span:
            return f"{compact(value / span)} {name}"
    for scale, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if value * scale >= 1:
            return f"{compact(value * scale)} {unit}"
    return f"{compact(value * 1e9)} ns"


def binary_ticks(largest: float) -> tuple[list[float], list[str]]:
    """Where a scale of bytes from 0 to ``largest`` has its labels, in whole steps of a power of 1024."""
    unit = 1.0
    while largest / unit >= 1024 and unit < 2.0**50:
        unit *= 1024
    step = next((n for n in _TICK_STEPS if largest / unit / n <= 5), _TICK_STEPS[-1])
    count = int(largest / unit / step) + 1
    values = [position * step * unit for position in range(count + 1)]
    return values, [binary_bytes(value) if value else "0" for value in values]


def binary_bytes(value: float) -> str:
    """``13 B``, ``1.50 KiB``, ``79.0 GiB``: three digits, powers of 1024 as memory is built."""
    scaled, prefix = value, ""
    for prefix in ("", "Ki", "Mi", "Gi", "Ti", "Pi"):
        if abs(scaled) < 999.5 or prefix == "Pi":
            break
        scaled /= 1024
    digits = 0 if not prefix or abs(scaled) >= 99.95 else 1 if abs(scaled) >= 9.995 else 2
    return f"{scaled:.{digits}f} {prefix}B"


def trace(values: Sequence[float], low: float, high: float) -> str:
    """A line of bars, ``▁▂▅█·``, from ``low`` to ``high``; a dot where there is no value."""
    span = (high - low) or 1.0
    levels = [None if value != value else (value - low) / span for value in values]  # noqa: PLR0124 - NaN
    last = len(_BARS) - 1
    return "".join(
        _NO_BAR if level is None else _BARS[round(min(max(level, 0.0), 1.0) * last)] for level in levels
    )


def tick(value: float) -> str:
    """A label on a scale: ``62.5``, ``250``, ``4 k``."""
    scale, prefix = next(((s, p) for s, p in _SCALES if value >= s), (1.0, ""))
    return f"{value / scale:g} {prefix}".rstrip()


def count(number: int, noun: str) -> str:
    """``1 layer``, ``3 layers``."""
    return f"{integer(number)} {noun}{'' if number == 1 else 's'}"


def copies(number: int) -> str:
    """``1 copy``, ``3 copies``."""
    return f"{number} {'copy' if number == 1 else 'copies'}"


def listed(noun: str, numbers: Sequence[int]) -> str:
    """``Rank 5``, ``Ranks 5, 17 and 40``, ``Ranks 0, 1, 2, 3, 4, 5 and 58 more``."""
    name = noun.capitalize()
    if len(numbers) == 1:
        return f"{name} {numbers[0]}"
    shown = [str(number) for number in numbers[:_MAX_LISTED]]
    rest = len(numbers) - len(shown)
    last = f"{rest} more" if rest else shown.pop()
    return f"{name}s {', '.join(shown)} and {last}"
