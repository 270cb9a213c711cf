"""Checks of keys and values that rule files and their tests share."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from moescope.checking.yaml_document import Document, KeyPath, Place, Problem, read_yaml
from moescope.schemas.errors import AlertRuleError, ProtocolError

_GUIDE: Final = "docs/alerts.md"
_DURATION: Final = re.compile(
    r"(?=\d)(?:(\d{1,12})d)?(?:(\d{1,12})h)?(?:(\d{1,12})m)?(?:(\d{1,12})s)?(?:(\d{1,12})ms)?"
)
_UNITS: Final = (86400.0, 3600.0, 60.0, 1.0, 0.001)
_LONGEST_SECONDS: Final = 366 * 86400.0
"""No store keeps more, and clocks and waits of the system have ends of their own."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key that a mapping may have.

    Attributes:
        what: what it takes, for messages.
        is_right: whether a value is that.
        is_needed: whether it must be there.
    """

    what: str
    is_right: Callable[[Any], bool]
    is_needed: bool = False


def read_document(path: Path) -> Document:
    """Read a YAML file with the place of each value.

    Raises:
        AlertRuleError: it cannot be read, or is no YAML; with the line.
    """
    try:
        document = read_yaml(path)
    except ProtocolError as error:
        raise AlertRuleError(str(error).replace("docs/readiness.md", _GUIDE)) from None
    return document


def refuse_file(path: Path, problems: Sequence[Problem]) -> AlertRuleError:
    """The error that lists all problems of a file in the order of its lines."""
    lines = [
        f"{path}:{one.place.line}:{one.place.column}: {f'{one.key}: ' if one.key else ''}{one.message}"
        for one in sorted(problems, key=lambda one: one.place)
    ]
    what = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
    return AlertRuleError("\n  ".join([f"{what} in {path}; {_GUIDE} lists every key", *lines]))


def check_keys(document: Document, path: KeyPath, where: str, known: Mapping[str, Key]) -> Iterator[Problem]:
    """Name unknown keys with the nearest known one, missing keys, and values of the wrong kind.

    Args:
        document: the file.
        path: of the mapping.
        where: what the mapping is, as in ``group hot, rule ExpertHot``; stands before each key.
        known: its keys.
    """
    value = value_at(document, path)
    prefix = f"{where}: " if where else ""
    if not isinstance(value, dict):
        yield Problem(document.place_of_value(path), where, f"is a mapping with {', '.join(known)}")
        return
    for key in value:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            yield Problem(document.place_of_key((*path, key)), f"{prefix}{key}", f"no such key; {hint}")
    for key, rule in known.items():
        if key not in value:
            if rule.is_needed:
                yield Problem(
                    document.place_of_value(path), f"{prefix}{key}", f"missing; it takes {rule.what}"
                )
        elif not rule.is_right(value[key]):
            yield Problem(document.place_of_value((*path, key)), f"{prefix}{key}", f"takes {rule.what}")


def value_at(document: Document, path: KeyPath) -> Any:
    """The value at a path that is there."""
    value = document.value
    for step in path:
        value = value[step]
    return value


def duration_seconds(text: str | float) -> float | None:
    """A span of time as Prometheus writes it (``1h30m``, ``90s``), in seconds.

    Returns:
        None if it is none, or longer than a year.
    """
    match = _DURATION.fullmatch(str(text).strip())
    if match is None:
        return 0.0 if str(text).strip() == "0" else None
    seconds = sum(int(part or 0) * unit for part, unit in zip(match.groups(), _UNITS, strict=True))
    return seconds if seconds <= _LONGEST_SECONDS else None


def is_text(value: Any) -> bool:
    """Whether a value is text that is not empty."""
    return isinstance(value, str) and bool(value.strip())


def is_duration(value: Any) -> bool:
    """Whether a value is a span of time, or 0."""
    return (
        isinstance(value, str | int) and not isinstance(value, bool) and duration_seconds(value) is not None
    )


def is_span(value: Any) -> bool:
    """Whether a value is a span of time above 0."""
    return is_duration(value) and bool(duration_seconds(value))


def is_interval(value: Any) -> bool:
    """Whether a value is a span of time that evaluations can be apart: a second or more."""
    return is_duration(value) and (duration_seconds(value) or 0.0) >= 1.0


def is_count(value: Any) -> bool:
    """Whether a value is a whole number above 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def is_mapping(value: Any) -> bool:
    """Whether a value is a mapping."""
    return isinstance(value, dict)


def is_list(value: Any) -> bool:
    """Whether a value is a list with something in it."""
    return isinstance(value, list) and bool(value)


def top(document: Document) -> Place:
    """The first line."""
    return document.place_of_value(())
