"""Attribute values as text, the way the stock ClickHouse exporter writes them into its ``Map`` columns.

Every value becomes a string: ``true``, ``17``, ``0.25``, base64 for bytes, JSON for lists and maps. The rules
are those of the Collector's ``Value.AsString`` so that rows from either way compare equal.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import numpy as np

_JSON_ESCAPES: Final = (
    ("<", "\\u003c"),
    (">", "\\u003e"),
    ("&", "\\u0026"),
    ("\u2028", "\\u2028"),
    ("\u2029", "\\u2029"),
)
_MIN_POSITIONAL: Final = 1e-6
_MAX_POSITIONAL: Final = 1e21


class KeyValue(Protocol):
    """An OTLP ``KeyValue`` of either descriptor pool."""

    key: str
    value: Any


def attribute_texts(attributes: Iterable[KeyValue]) -> dict[str, str]:
    """Return the attributes as text; of a repeated key the last one counts."""
    return {item.key: attribute_text(item.value) for item in attributes}


def attribute_text(value: Any) -> str:
    """Return one OTLP ``AnyValue`` as text; an unset value is the empty string."""
    kind = value.WhichOneof("value")
    if kind == "string_value":
        text: str = value.string_value
        return text
    if kind is None:
        return ""
    to_text = _TEXTS.get(kind)
    return _json_text(_plain(value)) if to_text is None else to_text(getattr(value, kind))


def int_attribute(attributes: Iterable[KeyValue], key: str) -> int | None:
    """Return the integer under ``key``; None where there is none or where it is no integer."""
    found = None
    for item in attributes:
        if item.key == key:
            is_int = item.value.WhichOneof("value") == "int_value"
            found = int(item.value.int_value) if is_int else None
    return found


def string_attribute(attributes: Iterable[KeyValue], key: str) -> str | None:
    """Return the string under ``key``; None where there is none or where it is no string."""
    found = None
    for item in attributes:
        if item.key == key:
            is_string = item.value.WhichOneof("value") == "string_value"
            found = str(item.value.string_value) if is_string else None
    return found


def text_attribute(attributes: Iterable[KeyValue], key: str) -> str:
    """Return the value under ``key`` as the landing tables have it; empty where there is none."""
    found = ""
    for item in attributes:
        if item.key == key:
            found = attribute_text(item.value)
    return found


def double_text(number: float) -> str:
    """Return the shortest text of a double, positional between 1e-6 and 1e21 as JSON has it."""
    if not math.isfinite(number):
        return f"json: unsupported value: {_go_special(number)}"
    size = abs(number)
    if size and not _MIN_POSITIONAL <= size < _MAX_POSITIONAL:
        mantissa, _, exponent = repr(number).partition("e")
        return f"{mantissa.removesuffix('.0')}e{exponent[0]}{exponent[1:].lstrip('0')}"
    return np.format_float_positional(number, unique=True, trim="-")


def _bytes_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


_TEXTS: Final[dict[str, Callable[[Any], str]]] = {
    "int_value": str,
    "bool_value": lambda value: "true" if value else "false",
    "double_value": double_text,
    "bytes_value": _bytes_text,
}


def _go_special(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "+Inf" if number > 0 else "-Inf"


def _plain(value: Any) -> Any:
    # protobuf itself refuses more than a hundred messages inside each other.
    kind = value.WhichOneof("value")
    if kind == "bytes_value":
        return _bytes_text(value.bytes_value)
    if kind == "array_value":
        return [_plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        members = value.kvlist_value.values
        return {item.key: _plain(item.value) for item in members}
    if kind == "double_value":
        return _JsonDouble(value.double_value)
    return None if kind is None else getattr(value, kind)


class _JsonDouble(float):
    """A float that the JSON encoder writes as the Collector would."""

    def __repr__(self) -> str:
        return double_text(float(self))


def _json_text(plain: Any) -> str:
    text = _encode(plain)
    for character, escape in _JSON_ESCAPES:
        text = text.replace(character, escape)
    return text


def _encode(plain: Any) -> str:
    if isinstance(plain, _JsonDouble):
        return repr(plain)
    if isinstance(plain, dict):
        members = (f"{_encode(key)}:{_encode(plain[key])}" for key in sorted(plain))
        return "{" + ",".join(members) + "}"
    if isinstance(plain, list):
        return "[" + ",".join(map(_encode, plain)) + "]"
    return json.dumps(plain, ensure_ascii=False)
