"""The documented views: what each answers, its columns as the store describes them, and one example."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moescope.analysis.store import Store
from moescope.schemas.migrate import list_migrations

EXAMPLES_FOLDER: Final = Path(__file__).parent / "sql_examples"
"""``<view>.sql`` each: a question as a comment, and the query that answers it. The only copy of each."""

_KIND: Final = "_view"


@dataclass(frozen=True, slots=True)
class Example:
    """A query that runs as it stands, and the question that it answers."""

    view: str
    question: str
    sql: str


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column of a view; ``comment`` is what it means, with its unit."""

    name: str
    type: str
    comment: str


@dataclass(frozen=True, slots=True)
class DocumentedView:
    """A view for people.

    Attributes:
        name: to query it by.
        question: what it answers, one sentence.
        note: what else there is to know.
        columns: as the store has them; none where the store lacks the view.
        example: one query.
    """

    name: str
    question: str
    note: str
    columns: tuple[ViewColumn, ...]
    example: Example


@functools.cache
def list_examples() -> tuple[Example, ...]:
    """Every example, in the order of the views."""
    return tuple(_example(name) for name, _ in _documented())


def read_views(store: Store) -> tuple[DocumentedView, ...]:
    """Read the views for people with the columns that the store says they have.

    Raises:
        StoreError: the store cannot answer.
    """
    table = store.query("view_columns", database=store.database)
    columns: dict[str, list[ViewColumn]] = {}
    for row in table.to_pylist():
        column = ViewColumn(row["name"], row["type"], row["comment"])
        columns.setdefault(row["view"], []).append(column)
    return tuple(
        DocumentedView(name, *_sentences(text), tuple(columns.get(name, ())), _example(name))
        for name, text in _documented()
    )


def _documented() -> Iterator[tuple[str, str]]:
    """Name of each view, and what its migration says of it."""
    for migration in list_migrations():
        if migration.name.endswith(_KIND):
            lines = [line for line in migration.text.splitlines() if line.startswith("--")]
            yield (
                migration.name.removesuffix(_KIND),
                " ".join(line.removeprefix("--").strip() for line in lines),
            )


def _sentences(text: str) -> tuple[str, str]:
    question, mark, note = text.partition("? ")
    return f"{question}{mark.strip()}", note


def _example(view: str) -> Example:
    text = (EXAMPLES_FOLDER / f"{view}.sql").read_text(encoding="utf-8")
    question, _, sql = text.partition("\n")
    return Example(view, question.removeprefix("--").strip(), sql.strip())
