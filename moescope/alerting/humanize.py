"""Numbers in words, as Prometheus's template functions of the same names write them."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote_plus

_LARGE: Final = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
_BINARY: Final = ("", "ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")
_SMALL: Final = ("", "m", "u", "n", "p", "f", "a", "z", "y")


def plain(value: float) -> str:
    """A number as Go prints it: 3 and not 3.0, 0.25, 1e+21."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    return repr(float(value))


def humanize(value: float) -> str:
    """With a metric prefix: 1.5M, 20m."""
    if not value or not math.isfinite(value):
        return _four(value)
    return _scaled(value, _LARGE, 1000) if abs(value) >= 1 else _small(value)


def humanize1024(value: float) -> str:
    """With a binary prefix: 1.5Gi."""
    if abs(value) <= 1 or not math.isfinite(value):
        return _four(value)
    return _scaled(value, _BINARY, 1024)


def humanize_duration(value: float) -> str:
    """Seconds as 1d 2h 3m 4s."""
    if not math.isfinite(value):
        return _four(value)
    if 0 < abs(value) < 1:
        return f"{_small(value)}s"
    sign, whole = ("-" if value < 0 else ""), int(abs(value))
    days, hours, minutes, seconds = whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    if days:
        return f"{sign}{days}d {hours}h {minutes}m {seconds}s"
    if hours:
        return f"{sign}{hours}h {minutes}m {seconds}s"
    if minutes:
        return f"{sign}{minutes}m {seconds}s"
    return f"{sign}{_four(abs(value))}s"


def humanize_percentage(value: float) -> str:
    """A ratio as a percentage: 0.25 is 25%."""
    return f"{_four(value * 100)}%"


def humanize_timestamp(value: float) -> str:
    """Unix seconds as a date in UTC; as a number where no calendar has that date."""
    try:
        moment = dt.datetime.fromtimestamp(value, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return _four(value)
    return f"{moment:%Y-%m-%d %H:%M:%S} +0000 UTC"


NUMBER_FUNCTIONS: Final[Mapping[str, Callable[[float], str]]] = {
    "humanize": humanize,
    "humanize1024": humanize1024,
    "humanizeDuration": humanize_duration,
    "humanizePercentage": humanize_percentage,
    "humanizeTimestamp": humanize_timestamp,
}
TEXT_FUNCTIONS: Final[Mapping[str, Callable[[str], str]]] = {
    "urlquery": quote_plus,
    "toUpper": str.upper,
    "toLower": str.lower,
    "title": str.title,
}


def _scaled(value: float, prefixes: tuple[str, ...], step: int) -> str:
    place = 0
    while abs(value) >= step and place < len(prefixes) - 1:
        value /= step
        place += 1
    return f"{_four(value)}{prefixes[place]}"


def _small(value: float) -> str:
    place = 0
    while abs(value) < 1 and place < len(_SMALL) - 1:
        value *= 1000
        place += 1
    return f"{_four(value)}{_SMALL[place]}"


def _four(value: float) -> str:
    """Four significant digits, as Go's %.4g."""
    if not math.isfinite(value):
        return plain(value)
    return f"{value:.4g}"
