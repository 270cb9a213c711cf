"""Ask the store what a rule asks, and read its rows as an observation."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from moescope.alerting.observation import LabelSet, Observation, Sample
from moescope.alerting.rule import AlertRule
from moescope.schemas.errors import QueryError
from moescope.schemas.settings import Settings

VALUE: Final = "value"
IS_ACTIVE: Final = "is_active"
INFO: Final = "info_"
_ROWS_PER_ALERT: Final = 50
"""Rows that are fine are no alerts, and more of them than this for each alert are no way to say so."""
_LABEL: Final = re.compile(r"(?!alertname$)[A-Za-z_][A-Za-z0-9_]*")


class Asks(Protocol):
    """What a rule needs of a store."""

    def ask(self, sql: str, params: Mapping[str, str | float]) -> pa.Table:
        """Answer one query."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of a rule's columns by what they are."""

    labels: tuple[str, ...]
    info: tuple[str, ...]
    says_what_it_sees: bool


def observe(store: Asks, rule: AlertRule, settings: Settings, at: float, limit: int) -> Observation:
    """Evaluate a rule's SQL.

    Args:
        store: who answers.
        rule: what is asked.
        settings: bound by name.
        at: Unix seconds that the rule looks at.
        limit: most alerts.

    Raises:
        QueryError: the answer is none of a rule: its columns, two rows of one series, too many alerts.
        StoreError: the store refused, or nobody answered.
    """
    expression = rule.expression
    most = _ROWS_PER_ALERT * limit
    table = store.ask(expression.as_query(most + 1), expression.bind(settings, at))
    columns = read_columns(table.schema)
    if table.num_rows > most:
        raise QueryError(
            f"more than {most} rows; leave out those that are fine, and say that they were looked at with "
            "a row whose labels are NULL (docs/alerts.md)"
        )
    return _observation(table, columns, limit)


def read_columns(schema: pa.Schema) -> Columns:
    """Sort the columns of an answer.

    Raises:
        QueryError: ``value`` is missing or no number, or a label is neither text nor a whole number.
    """
    kinds = {field.name: field.type for field in schema}
    if VALUE not in kinds:
        raise QueryError(f"there is no column value; name the number that is judged: … AS {VALUE}")
    if not _is_number(kinds[VALUE]):
        raise QueryError(f"column value is {kinds[VALUE]}, and must be a number")
    if IS_ACTIVE in kinds and not _is_whole(kinds[IS_ACTIVE]):
        raise QueryError(
            f"column {IS_ACTIVE} is {kinds[IS_ACTIVE]}; write a condition: load > 2 AS {IS_ACTIVE}"
        )
    labels = [name for name in kinds if name not in {VALUE, IS_ACTIVE} and not name.startswith(INFO)]
    for name in labels:
        if not _LABEL.fullmatch(name):
            raise QueryError(f"column {name!r} is no name for a label; write … AS name, and not alertname")
        if not (_is_text(kinds[name]) or _is_whole(kinds[name])):
            raise QueryError(
                f"column {name} is {kinds[name]}; a label is text or a whole number. Convert it with "
                f"toString({name}), or call it {INFO}{name} if it only belongs into a text"
            )
    info = [name for name in kinds if name.startswith(INFO)]
    return Columns(tuple(sorted(labels)), tuple(info), IS_ACTIVE in kinds)


def _observation(table: pa.Table, columns: Columns, limit: int) -> Observation:
    samples: dict[LabelSet, Sample] = {}
    scopes: list[frozenset[tuple[str, str]]] = []
    active = 0
    for row in table.to_pylist():
        labels = tuple((name, _text(row[name])) for name in columns.labels if row[name] not in {None, ""})
        is_active = bool(row[IS_ACTIVE]) if columns.says_what_it_sees else True
        if not is_active and any(row[name] is None for name in columns.labels):
            scopes.append(frozenset(labels))
            continue
        if labels in samples:
            raise QueryError(f"two rows are the same series {_shown(labels)}; group by the labels")
        info = tuple((name.removeprefix(INFO), _text(row[name])) for name in columns.info)
        value = math.nan if row[VALUE] is None else float(row[VALUE])
        samples[labels] = Sample(labels, value, is_active, info)
        active += is_active
    if active > limit:
        raise QueryError(
            f"more than {limit} alerts at once; have the rule group them, or raise the group's limit"
        )
    return Observation(samples, tuple(scopes), columns.says_what_it_sees)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dt.datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _shown(labels: Iterable[tuple[str, str]]) -> str:
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels) + "}"


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        _is_whole(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    )
