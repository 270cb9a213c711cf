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


ROWS: Final = "each row"
"""Instead of a column: a row is named by all its names together, as in ``layer 40, expert 347``."""


class ChartKind(StrEnum):
    """How values are drawn."""

    LINE = "line"
    BAR = "bar"
    POINTS = "points"


@dataclass(frozen=True, slots=True)
class ChartChoice:
    """Names of the columns of a chart; ``x`` may be :data:`ROWS`, ``series`` is empty for a single line."""

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
    that is left. What names the rest tells lines apart, where that gives one value a place; where nothing
    does, each row has a place of its own.
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
    others = [name for name in names if name is not x and name is not up]
    series = _choose_series(x, others if times else [one for one in others if _repeats(one)])
    untold = [name for name in others if name.name != series and len(set(name.cells)) > 1]
    is_apart = _is_apart(x, _find(answer, series)) if series else len(set(x.cells)) == answer.row_count
    is_crowded = not times and names and (untold or not is_apart)
    return ChartChoice(ROWS, up.name, "") if is_crowded else ChartChoice(x.name, up.name, series)


def names_rows(answer: SqlAnswer) -> bool:
    """Whether :data:`ROWS` can go along."""
    return any(_is_name(column) for column in answer.columns)


def measures(answer: SqlAnswer) -> tuple[Column, ...]:
    """Columns that can go up: numbers, those that are amounts first."""
    numbers = [column for column in answer.columns if column.kind in NUMBERS]
    return tuple(sorted(numbers, key=_is_name))


def lay_out(answer: SqlAnswer, choice: ChartChoice) -> Chart:
    """Put the values of the chosen columns in order."""
    x = _name_rows(answer) if choice.x == ROWS else _find(answer, choice.x)
    y = _find(answer, choice.y)
    names = _find(answer, choice.series).cells if choice.series else ("",) * answer.row_count
    rows = list(zip(names, x.cells, y.cells, strict=True))[:MAX_POINTS]
    found = list(dict.fromkeys(name for name, _, _ in rows))
    kept = sorted(found[:MAX_SERIES], key=_order) if choice.series else found
    series = tuple(_series(choice, name, [row[1:] for row in rows if row[0] == name], x) for name in kept)
    return Chart(_kind(x), choice, series, _is_name(x), _left_out(answer.row_count, len(found)))


def _find(answer: SqlAnswer, name: str) -> Column:
    return next(column for column in answer.columns if column.name == name)


def _name_rows(answer: SqlAnswer) -> Column:
    named = [column for column in answer.columns if _is_name(column)]
    rows = zip(*(column.cells for column in named), strict=True)
    words = [
        ", ".join(_spell(column.name, value) for column, value in zip(named, row, strict=True))
        for row in rows
    ]
    return Column(ROWS, "String", ValueKind.TEXT, tuple(words))


def _spell(name: str, value: Value) -> str:
    return f"{name} {value}" if isinstance(value, int) else str(value)


def _choose_series(x: Column, others: Sequence[Column]) -> str:
    several = [one for one in others if 2 <= len(set(one.cells)) <= MAX_SERIES]
    apart = [one for one in several if _is_apart(x, one)]
    return next((one.name for one in apart or several), "")


def _repeats(column: Column) -> bool:
    """Whether its names come twice each, or so: a bar of its own colour for each row tells nothing."""
    return 2 * len(set(column.cells)) <= len(column.cells)


def _is_apart(x: Column, series: Column) -> bool:
    pairs = list(zip(x.cells, series.cells, strict=True))
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
    label = _spell(choice.series, name) if choice.series else ""
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
