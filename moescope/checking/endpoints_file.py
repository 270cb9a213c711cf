"""``MOESCOPE_ENDPOINTS_FILE``: what each endpoint takes, as somebody configured it.

::

    endpoints:
      - service: kimi-k3
        ep_group: "0"               # all EP groups of the deployment if it is left out
        max_context_tokens: 1048576
        modalities: [text, image]
        url: http://10.0.0.7:8000   # for the gateway; not used here
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from moescope.checking.yaml_document import Document, KeyPath, Place, Problem, read_yaml
from moescope.schemas.errors import ProtocolError, SettingError
from moescope.schemas.signals import EndpointLimits

_KEYS: Final = ("service", "ep_group", "max_context_tokens", "modalities", "url")
_ROOT: Final = "endpoints"


def read_endpoints(path: Path) -> tuple[EndpointLimits, ...]:
    """Read and check the file of endpoints.

    Raises:
        SettingError: everything that is wrong with the file, line by line.
    """
    try:
        document = read_yaml(path)
    except ProtocolError as error:
        raise SettingError(str(error).replace("docs/readiness.md", "docs/signals.md")) from None
    problems = [*document.problems, *_problems(document)]
    if problems:
        raise _refuse(path, problems)
    return tuple(_limits(entry) for entry in document.value[_ROOT])


def _limits(entry: Mapping[str, Any]) -> EndpointLimits:
    modalities = entry.get("modalities")
    return EndpointLimits(
        str(entry["service"]),
        str(entry.get("ep_group", "")),
        entry.get("max_context_tokens"),
        None if modalities is None else tuple(modalities),
        entry.get("url", ""),
    )


def _problems(document: Document) -> Iterator[Problem]:
    value = document.value
    if not isinstance(value, dict) or not isinstance(value.get(_ROOT), list) or not value[_ROOT]:
        yield Problem(Place(1, 1), "", f"the file is a mapping with one key, {_ROOT}, a list of endpoints")
        return
    yield from _unknown_keys(document, (), value, (_ROOT,))
    seen: set[tuple[str, str]] = set()
    for position, entry in enumerate(value[_ROOT]):
        path: KeyPath = (_ROOT, position)
        if not isinstance(entry, dict):
            yield Problem(document.place_of_value(path), "", "an endpoint is a mapping: service: kimi-k3")
            continue
        yield from _unknown_keys(document, path, entry, _KEYS)
        yield from _wrong_values(document, path, entry)
        name = (str(entry.get("service", "")), str(entry.get("ep_group", "")))
        if name in seen:
            yield Problem(document.place_of_value(path), "", "this endpoint stands twice; keep one of them")
        seen.add(name)


def _unknown_keys(
    document: Document, path: KeyPath, entry: Mapping[str, Any], known: tuple[str, ...]
) -> Iterator[Problem]:
    for key in entry:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            yield Problem(document.place_of_key((*path, key)), key, f"no such key; {hint}")


def _wrong_values(document: Document, path: KeyPath, entry: Mapping[str, Any]) -> Iterator[Problem]:
    wanted = {
        "service": ("the name of a deployment", _is_name),
        "ep_group": ("the name of an EP group", _is_name),
        "max_context_tokens": ("a whole number of tokens above 0", _is_count),
        "modalities": ("a list of words, as in [text, image]", _is_words),
        "url": ("an address, as in http://host:8000", _is_text),
    }
    if "service" not in entry:
        yield Problem(document.place_of_value(path), "service", "missing; it names the deployment")
    for key, (what, is_right) in wanted.items():
        if key in entry and not is_right(entry[key]):
            yield Problem(document.place_of_value((*path, key)), key, f"takes {what}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_name(value: Any) -> bool:
    # An EP group is often called 0, which YAML reads as a number.
    return _is_text(value) or (isinstance(value, int) and not isinstance(value, bool))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_text, value))


def _refuse(path: Path, problems: list[Problem]) -> SettingError:
    lines = [
        f"{path}:{one.place.line}:{one.place.column}: {f'{one.key}: ' if one.key else ''}{one.message}"
        for one in sorted(problems, key=lambda one: one.place)
    ]
    return SettingError("\n  ".join([f"{path} is no list of endpoints; docs/signals.md has one", *lines]))
