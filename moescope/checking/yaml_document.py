"""A YAML file as plain values, each with its line and column.

Less than YAML allows: no aliases (a short file could mean gigabytes), no tags, one document, no key twice.
Text such as ``1:30`` or ``2026-11-29`` stays text, where YAML 1.1 would make a number or a date of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from moescope.schemas.errors import ProtocolError

KeyPath: TypeAlias = tuple[str | int, ...]

_MAX_BYTES: Final = 2**20
_MAX_DEPTH: Final = 16
_STR: Final = "tag:yaml.org,2002:str"
_PLAIN_TAGS: Final = {f"tag:yaml.org,2002:{name}" for name in ("bool", "int", "float", "null", "str")}
_NUMBER: Final = re.compile(r"[-+]?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_WHOLE: Final = re.compile(r"[-+]?(0|[1-9]\d{0,17})")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Line and column in a file, both from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a file: where, in which key (empty: in none), and what to do."""

    place: Place
    key: str
    message: str


@dataclass(frozen=True, slots=True)
class Document:
    """The values of a file, and where they stand.

    Attributes:
        value: mappings, lists, text, numbers, truth values and None.
        keys: where the key of each path stands.
        values: where its value begins.
        problems: what is wrong already, keys that stand twice.
    """

    path: Path
    value: Any
    keys: Mapping[KeyPath, Place]
    values: Mapping[KeyPath, Place]
    problems: tuple[Problem, ...] = ()

    def place_of_key(self, path: KeyPath) -> Place:
        """Where a key stands; of one that is not there, where its mapping does."""
        while path and path not in self.keys and path not in self.values:
            path = path[:-1]
        return self.keys.get(path) or self.values.get(path) or Place(1, 1)

    def place_of_value(self, path: KeyPath) -> Place:
        """Where a value begins."""
        return self.values.get(path) or self.place_of_key(path)


def refuse(path: Path, problems: Iterator[Problem] | tuple[Problem, ...]) -> ProtocolError:
    """The error that lists all problems of a file in the order of its lines."""
    lines = [
        f"{path}:{one.place.line}:{one.place.column}: {f'{one.key}: ' if one.key else ''}{one.message}"
        for one in sorted(problems, key=lambda one: one.place)
    ]
    what = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
    return ProtocolError("\n  ".join([f"{what} in {path}; docs/readiness.md lists every key", *lines]))


def read_yaml(path: Path) -> Document:
    """Read one YAML document with the place of every value.

    Raises:
        ProtocolError: the file cannot be read, or is not the kind of YAML that is taken; with the line.
    """
    text = _read_text(path)
    _refuse_what_is_not_taken(path, text)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise _unreadable(path, text, error) from None
    if node is None:
        raise _wrong(path, "the file is empty")
    places = _Places()
    value = places.take(node, ())
    return Document(path, value, places.keys, places.values, tuple(places.problems))


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ProtocolError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > _MAX_BYTES:
        raise _wrong(path, f"more than {_MAX_BYTES} bytes; a file of this kind has a few thousand at most")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        place = Place(before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
        raise refuse(
            path, (Problem(place, "", "a byte that is no UTF-8; save the file in that encoding"),)
        ) from None


def _refuse_what_is_not_taken(path: Path, text: str) -> None:
    """Look at the events first: what a bomb is made of never becomes nodes."""
    depth = documents = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
            message = _why_not(event, depth, documents)
            if message:
                raise refuse(path, (Problem(_place(event.start_mark), "", message),))
    except yaml.YAMLError as error:
        raise _unreadable(path, text, error) from None


def _why_not(event: Any, depth: int, documents: int) -> str:
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
        return f"anchors and aliases are not taken ({event.anchor!r}); write the value out"
    if getattr(event, "tag", None):
        return f"tags are not taken ({event.tag}); write the plain value"
    if depth > _MAX_DEPTH:
        return f"more than {_MAX_DEPTH} levels; a file of this kind has a few"
    if documents > 1:
        return "a second document begins here; one file holds one"
    return ""


def _unreadable(path: Path, text: str, error: yaml.YAMLError) -> ProtocolError:
    """What the parser says, in one line, with the place."""
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        place = Place(before.count("\n") + 1, error.position - before.rfind("\n"))
        message = f"the character {chr(int(error.character))!r} may not stand in YAML; remove it"
        return refuse(path, (Problem(place, "", message),))
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    message = getattr(error, "problem", None) or str(error).splitlines()[0]
    if "'\\t'" in message or "tab" in message:
        message = "a tab; YAML is indented with spaces"
    return refuse(path, (Problem(_place(mark) if mark else Place(1, 1), "", f"no YAML: {message}"),))


def _wrong(path: Path, message: str) -> ProtocolError:
    return refuse(path, (Problem(Place(1, 1), "", message),))


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)


@dataclass(slots=True)
class _Places:
    """What is collected on the way through the nodes."""

    keys: dict[KeyPath, Place] = field(default_factory=dict)
    values: dict[KeyPath, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def take(self, node: yaml.Node, path: KeyPath) -> Any:
        self.values[path] = _place(node.start_mark)
        if isinstance(node, yaml.MappingNode):
            return self._take_mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.take(item, (*path, position)) for position, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)  # noqa: S101 - the three kinds of node there are
        return _scalar(node)

    def _take_mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        taken: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = _place(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(Problem(place, _dotted(path), "a key is a word"))
                continue
            key = str(key_node.value)
            if key in taken:
                first = self.keys[*path, key].line
                message = f"stands twice, first in line {first}; keep one of them"
                self.problems.append(Problem(place, _dotted((*path, key)), message))
                continue
            self.keys[*path, key] = place
            taken[key] = self.take(value_node, (*path, key))
        return taken


def _scalar(node: yaml.ScalarNode) -> Any:
    """Plain YAML 1.2 values: numbers in decimal, true and false, null; everything else is text."""
    text = str(node.value)
    if node.style is not None or node.tag == _STR or node.tag not in _PLAIN_TAGS:
        return _number(text) if node.style is None else text
    if node.tag.endswith(":null"):
        return None
    if node.tag.endswith(":bool"):
        return text.lower() in {"true", "yes", "on"}
    return _number(text)


def _number(text: str) -> int | float | str:
    if _WHOLE.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


def _dotted(path: KeyPath) -> str:
    return ".".join(str(part) for part in path)
