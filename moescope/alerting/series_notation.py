"""Numbers in promtool's short notation: ``1+2x3`` is 1 3 5 7, ``5x3`` is 5 5 5 5, ``_x2`` is two gaps."""

from __future__ import annotations

import re
from typing import Final

_NUMBER: Final = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_WORD: Final = re.compile(
    rf"(?P<gap>_)(?:x(?P<gaps>\d+))?|(?P<first>{_NUMBER})(?:(?P<step>[-+](?:\d+(?:\.\d*)?|\.\d+))?x(?P<more>\d+))?"
)
MOST_VALUES: Final = 100_000


def expand(text: str) -> list[float | int | None]:
    """Expand a text; None is a gap.

    Raises:
        ValueError: a word that is none of the notation, or more values than a test has use for.
    """
    values: list[float | int | None] = []
    for word in text.split():
        match = _WORD.fullmatch(word)
        if match is None:
            raise ValueError(f"{word!r} is none of 7, 5x3, 1+2x3, 9-1x3 and _x2")
        count = int(match["gaps"] or 1) if match["gap"] else int(match["more"] or 0) + 1
        if len(values) + count > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES} values")
        if match["gap"]:
            values += [None] * count
            continue
        first, step = _number(match["first"]), _number(match["step"] or "0")
        values += [first + step * place for place in range(count)]
    return values


def _number(text: str) -> float | int:
    return int(text) if text.lstrip("+-").isdigit() else float(text)
