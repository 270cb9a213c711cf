"""How arguments are read."""

from __future__ import annotations

import re
from typing import Final

import typer

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}


def parse_duration(text: str | float) -> float:
    """Read a span of time: ``90s``, ``15m``, ``24h``, ``1.5`` (seconds).

    Returns:
        seconds.

    Raises:
        typer.BadParameter: the text is no span of time.
    """
    match = _DURATION.fullmatch(str(text).strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no span of time; write 90s, 15m, 6h or 2d")
    return float(match[1]) * _SECONDS[match[2]]
