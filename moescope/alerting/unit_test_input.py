"""Put into a scratch store what a test says is there: rows of tables and views, or simulated windows."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from moescope.alerting.scratch_store import ScratchStore
from moescope.alerting.series_notation import expand
from moescope.alerting.unit_test_case import Rows, RuleTest
from moescope.alerting.yaml_keys import duration_seconds
from moescope.exporters.otlp_config import Protocol, load_otlp_config
from moescope.schemas.errors import AlertRuleError, UsageError
from moescope.schemas.settings import Settings
from moescope.simulator.fleet import Fleet
from moescope.simulator.plan import backfill_interval, make_plan
from moescope.simulator.run import run_fleet

_START, _END, _TIME = "start_time", "end_time", "time"
_FIRST: Final = "SELECT toFloat64(min(start_time)) AS first FROM measurement"


@contextlib.contextmanager
def filled(scratch: ScratchStore, test: RuleTest, now: float) -> Iterator[float]:
    """Write a test's input and yield when its time 0 is, Unix seconds; afterwards the store is empty again.

    The end of the test lies just before ``now``: the schema's views are for such data.

    Raises:
        AlertRuleError: a table or column that the schema lacks.
    """
    start = (now - test.span_seconds) // 60 * 60 - 60
    views: dict[str, str] = {}
    try:
        if test.simulate is not None:
            start = _simulate(scratch, test.simulate)
        for rows in test.rows:
            columns = _columns(scratch, rows.table)
            _replace_view(scratch, rows.table, views)
            scratch.insert(rows.table, "\n".join(_lines(rows, columns, start, test.interval_seconds)))
        yield start
    finally:
        for name, statement in views.items():
            scratch.command(f"DROP TABLE {name}")
            scratch.command(statement)
        scratch.clear()


def _columns(scratch: ScratchStore, table: str) -> dict[str, str]:
    found = scratch.store.ask(
        "SELECT name, type FROM system.columns WHERE database = {database:String} AND table = {table:String}",
        {"database": scratch.database, "table": table},
    )
    if not found.num_rows:
        raise AlertRuleError(f"input: no table or view {table!r}; docs/tables.md lists them all")
    return {row["name"]: row["type"] for row in found.to_pylist()}


def _replace_view(scratch: ScratchStore, name: str, views: dict[str, str]) -> None:
    """Put a table with the columns of a view in its place, since nothing can be written into a view."""
    found = scratch.store.ask(
        "SELECT create_table_query AS made FROM system.tables "
        "WHERE database = {database:String} AND name = {name:String} AND engine = 'View'",
        {"database": scratch.database, "name": name},
    )
    if found.num_rows and name not in views:
        views[name] = found.to_pylist()[0]["made"]
        typed = ", ".join(f"`{column}` {kind}" for column, kind in _columns(scratch, name).items())
        scratch.command(f"DROP VIEW {name}")
        scratch.command(f"CREATE TABLE {name} ({typed}) ENGINE = Memory")


def _lines(rows: Rows, columns: Mapping[str, str], start: float, interval: float) -> Iterator[str]:
    unknown = sorted({*rows.columns, *rows.values} - {*columns})
    if unknown:
        raise AlertRuleError(f"input: {rows.table} has no column {unknown[0]}; it has {', '.join(columns)}")
    constant = {name: _constant(value, columns[name]) for name, value in rows.columns.items()}
    for place in range(rows.count):
        row = dict(constant)
        for name, values in rows.values.items():
            row[name] = values[place] if place < len(values) else None
        if any(row[name] is None for name in rows.values):
            continue
        begin = start + place * interval
        if _START in columns:
            times = {_START: begin, _END: begin + interval, _TIME: begin + interval / 2}
        elif _END in columns:
            times = {_END: begin + interval, _TIME: begin + interval / 2}
        else:
            times = {_TIME: begin}
        yield json.dumps({**{name: _text(at) for name, at in times.items() if name in columns}, **row})


def _constant(value: Any, kind: str) -> Any:
    return expand(value) if kind.startswith("Array(") and isinstance(value, str) else value


def _text(seconds: float) -> str:
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]


def _simulate(scratch: ScratchStore, options: Mapping[str, Any]) -> float:
    """Send windows as an engine does, through the same recorder, exporter and receiver."""
    try:
        plan = make_plan(
            model=options.get("model", "kimi-k3"),
            ranks=options.get("ranks", 8),
            tensor_parallel=options.get("tensor_parallel", 1),
            scenarios=[options["scenario"]] if "scenario" in options else [],
            seed=options.get("seed", 1),
            service=options.get("service"),
            redundant_experts=options.get("redundant_experts"),
        )
    except UsageError as error:
        raise AlertRuleError(f"simulate: {error}") from None
    backfill = duration_seconds(options["backfill"]) or 60.0
    window = duration_seconds(options["window"]) if "window" in options else None
    config = load_otlp_config({}, endpoint=scratch.otlp_endpoint, protocol=Protocol.GRPC)
    run_fleet(
        Fleet(plan, config, Settings()),
        backfill_seconds=backfill,
        backfill_interval_seconds=backfill_interval(backfill, window),
        windows=0,
        interval_seconds=10.0,
        truth_file=None,
        progress=lambda _what, _done, _total: None,
    )
    return float(scratch.store.ask(_FIRST, {}).to_pylist()[0]["first"])
