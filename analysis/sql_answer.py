"""What a person's query brought back: columns with every digit, and what it cost."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

Value: TypeAlias = int | float | str | bool | None

FORMAT: Final = "JSONCompactEachRowWithNamesAndTypes"
"""A line of names, a line of types, a line for each row; integers have as many digits as they need."""

_WRAPPED: Final = re.compile(r"(?:Nullable|LowCardinality)\((.*)\)", re.DOTALL)
_INTEGER: Final = re.compile(r"U?Int\d+")
_FLOAT: Final = re.compile(r"(?:B?Float\d+|BFloat16)")
_TIME: Final = re.compile(r"Date(?:Time)?(?:32|64)?(?:\(.*\))?")
_NESTED: Final = re.compile(r"(?:Array|Map|Tuple|Nested|Variant|Dynamic|JSON|Object)\b.*", re.DOTALL)


class ValueKind(StrEnum):
    """What a column can be used for."""

    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    TIME = "time"
    TEXT = "text"
    NESTED = "nested"


NUMBERS: Final = frozenset({ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DECIMAL})


@dataclass(frozen=True, slots=True)
class Column:
    """One column of an answer.

    Attributes:
        name: as the query names it.
        type: ClickHouse's type.
        kind: what that is good for.
        cells: ``[rows]``; integers of any size are exact, decimals and times are text as ClickHouse prints
            them (times in the zone of their type, else UTC), lists and maps are JSON.
    """

    name: str
    type: str
    kind: ValueKind
    cells: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a query took, as ClickHouse counts it; None where the store does not say.

    Attributes:
        seconds: in the store; without the way there and back.
        read_rows, read_bytes: from storage, bytes before compression.
        memory_bytes: most memory at a time.
    """

    seconds: float | None
    read_rows: int | None
    read_bytes: int | None
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """The answer to one query.

    Attributes:
        columns: none where the query names a ``FORMAT`` of its own.
        row_count: rows that are here.
        is_cut: there were more than are shown.
        own_format: the format that the query names, empty where it names none; then ``text`` has the answer.
        query_id: under which the store knows the query.
    """

    columns: tuple[Column, ...]
    row_count: int
    is_cut: bool
    own_format: str
    text: str
    cost: Cost
    query_id: str

    def csv(self) -> str:
        """Return the rows as CSV with a line of names; NULL is empty."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([column.name for column in self.columns])
        writer.writerows(zip(*(column.cells for column in self.columns), strict=True))
        return file.getvalue()


def read_answer(
    body: bytes, answered_format: str, summary: Mapping[str, str], *, query_id: str, max_rows: int
) -> SqlAnswer:
    """Read what a store answered.

    Args:
        body: in ``answered_format``.
        answered_format: :data:`FORMAT` unless the query names its own.
        summary: ClickHouse's ``X-ClickHouse-Summary``: counts as text, by name.
        query_id: the query's own.
        max_rows: a store that cuts answers ends them with a whole block; those beyond are dropped.
    """
    cost = _cost(summary)
    text = body.decode("utf-8", "replace")
    if answered_format.lower() != FORMAT.lower():
        return SqlAnswer((), 0, False, answered_format, text, cost, query_id)
    # Not splitlines, which also ends lines where a string has a rarer separator.
    lines = text.rstrip("\n").split("\n")
    names, types = (json.loads(line) for line in lines[:2]) if len(lines) >= 2 else ([], [])
    rows = [json.loads(line) for line in lines[2 : 2 + max_rows]]
    columns = tuple(_columns(names, types, rows))
    return SqlAnswer(columns, len(rows), len(lines) > 2 + max_rows, "", "", cost, query_id)


def kind_of(type_name: str) -> ValueKind:
    """Return what a ClickHouse type is good for."""
    bare = type_name
    while wrapped := _WRAPPED.fullmatch(bare):
        bare = wrapped[1]
    for pattern, kind in (
        (_INTEGER, ValueKind.INTEGER),
        (_FLOAT, ValueKind.FLOAT),
        (_TIME, ValueKind.TIME),
        (_NESTED, ValueKind.NESTED),
    ):
        if pattern.fullmatch(bare):
            return kind
    return ValueKind.DECIMAL if bare.startswith("Decimal") else ValueKind.TEXT


def _columns(names: Sequence[str], types: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[Column]:
    by_column = zip(*rows, strict=True) if rows else itertools.repeat((), len(names))
    for name, type_name, values in zip(names, types, by_column, strict=True):
        kind = kind_of(type_name)
        yield Column(name, type_name, kind, tuple(_value(value, kind) for value in values))


def _value(value: Any, kind: ValueKind) -> Value:
    if value is None:
        return None
    if kind is ValueKind.INTEGER:
        return int(value)
    if kind is ValueKind.FLOAT:
        return float(value)
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return value if isinstance(value, bool) else str(value)


def _cost(summary: Mapping[str, str]) -> Cost:
    def number(name: str) -> int | None:
        text = summary.get(name, "")
        return int(text) if text.isdigit() else None

    elapsed = number("elapsed_ns")
    memory = number("memory_usage")
    return Cost(
        None if elapsed is None else elapsed / 1e9, number("read_rows"), number("read_bytes"), memory or None
    )
