"""Which chart suits an answer: what goes along, what goes up, and what tells the lines apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from moescope.analysis.sql_answer import NUMBERS, Column, SqlAnswer, Value, ValueKind

MAX_POINTS: Final = 5_000
MAX_SERIES: Final = 16
"""More lines than that nobody tells apart."""

_NAMES: Final = frozenset({"layer", "expert", "ep_rank", "peer_rank", "rank", "node", "gpu", "ep_group"})
"""Whole numbers that name something, and are not amounts of anything."""


class ChartKind(StrEnum):
    """How values are drawn."""

    LINE = "line"
    BAR = "bar"
    POINTS = "points"


@dataclass(frozen=True, slots=True)
class ChartChoice:
    """Names of the columns of a chart; ``series`` is empty where there is one line only."""

    x: str
    y: str
    series: str


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart: equally long ``x`` and ``y``; ``name`` is empty where there is one only."""

    name: str
    x: tuple[Value, ...]
    y: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn.

    Attributes:
        is_named: x names things and does not measure them: it is drawn as words.
        left_out: rows or lines that are not drawn, in a sentence; may be empty.
    """

    kind: ChartKind
    choice: ChartChoice
    series: tuple[Series, ...]
    is_named: bool
    left_out: str


def choose_chart(answer: SqlAnswer) -> ChartChoice | None:
    """Choose the columns of a chart, None where nothing can be drawn.

    Along go times, else names (layer, expert, rank, text), else the first number; up goes the first amount
    that is left. What names the rest tells lines apart, where that gives one value a place.
    """
    ups = measures(answer)
    if answer.row_count < 2 or not ups:
        return None
    names = [column for column in answer.columns if _is_name(column)]
    times = [column for column in answer.columns if column.kind is ValueKind.TIME]
    x = (times or names or ups)[0]
    up = next((column for column in ups if column is not x), None)
    if up is None:
        return None
    return ChartChoice(x.name, up.name, _choose_series(x, [name for name in names if name is not x]))


def measures(answer: SqlAnswer) -> tuple[Column, ...]:
    """Columns that can go up: numbers, those that are amounts first."""
    numbers = [column for column in answer.columns if column.kind in NUMBERS]
    return tuple(sorted(numbers, key=_is_name))


def lay_out(answer: SqlAnswer, choice: ChartChoice) -> Chart:
    """Put the values of the chosen columns in order."""
    by_name = {column.name: column for column in answer.columns}
    x, y = by_name[choice.x], by_name[choice.y]
    names = by_name[choice.series].values if choice.series else ("",) * answer.row_count
    rows = list(zip(names, x.values, y.values, strict=True))[:MAX_POINTS]
    found = list(dict.fromkeys(name for name, _, _ in rows))
    kept = sorted(found[:MAX_SERIES], key=_order) if choice.series else found
    series = tuple(_series(choice, name, [row[1:] for row in rows if row[0] == name], x) for name in kept)
    return Chart(_kind(x), choice, series, _is_name(x), _left_out(answer.row_count, len(found)))


def _choose_series(x: Column, others: Sequence[Column]) -> str:
    several = [one for one in others if 2 <= len(set(one.values)) <= MAX_SERIES]
    apart = [one for one in several if _is_apart(x, one)]
    return next((one.name for one in apart or several), "")


def _is_apart(x: Column, series: Column) -> bool:
    pairs = list(zip(x.values, series.values, strict=True))
    return len(set(pairs)) == len(pairs)


def _is_name(column: Column) -> bool:
    if column.kind is ValueKind.TEXT:
        return True
    return column.kind is ValueKind.INTEGER and column.name.lower() in _NAMES


def _kind(x: Column) -> ChartKind:
    if x.kind is ValueKind.TIME:
        return ChartKind.LINE
    return ChartKind.BAR if _is_name(x) or x.kind not in NUMBERS else ChartKind.POINTS


def _series(choice: ChartChoice, name: Value, points: Sequence[tuple[Value, Value]], x: Column) -> Series:
    if x.kind is ValueKind.TIME:
        points = sorted(points, key=lambda point: str(point[0]))
    label = "" if not choice.series else f"{choice.series} {name}" if isinstance(name, int) else str(name)
    return Series(label, tuple(along for along, _ in points), tuple(_number(up) for _, up in points))


def _number(value: Value) -> Value:
    """A decimal comes as text and is drawn as a number."""
    return float(value) if isinstance(value, str) else value


def _order(value: Value) -> tuple[bool, float, str]:
    is_number = isinstance(value, (int, float))
    return (not is_number, float(value or 0) if is_number else 0.0, str(value))


def _left_out(rows: int, lines: int) -> str:
    parts = []
    if rows > MAX_POINTS:
        parts.append(f"The first {MAX_POINTS} of {rows} rows are drawn.")
    if lines > MAX_SERIES:
        parts.append(f"The first {MAX_SERIES} of {lines} lines are drawn.")
    return " ".join(parts)
