"""Write the pages that are derived from the code: metrics, settings, tables, the command line and its JSON.

``python docs/generate.py`` writes them, ``--check`` fails where a page on disk differs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from json_answers import json_page
from typer.main import get_command

from moescope.cli import app
from moescope.schemas.coverage import COVERAGE, Cell, Coverage, Engine
from moescope.schemas.metrics import METRICS, Encoding, Metric
from moescope.schemas.migrate import list_migrations
from moescope.schemas.settings import setting_rows

FOLDER = Path(__file__).parent

ENCODINGS = {
    Encoding.PLAIN: "plain",
    Encoding.BY_EXPERT: "by expert",
    Encoding.BY_PEER_RANK: "by peer rank",
    Encoding.BY_LAYER: "by layer",
}


_METRICS_HEAD = """\
# Metrics

Generated from `schemas/metrics.py` and `schemas/coverage.py`. *By expert*, *by peer rank* and *by layer* are
index-encoded histograms: bucket i is index i (`moe.encoding = index`), and no quantile of them means
anything. They never stand on a Prometheus page.

| metric | kind, unit | attributes | encoding | what it says |
|---|---|---|---|---|
"""
_COVERAGE_HEAD = """
## Who fills it, and where it is seen

*Measured*: each event counts. *Sampled*: measured on a random share of forward passes
(`MOESCOPE_TIMING_SAMPLE`) and scaled up. *Apportioned*: shared out by tokens from a time that several
experts have in common, and labelled so in the view. *Absent*: not reported, with the reason. The simulator
fills every row; any other engine those for which it calls the recorder. A view is what people query, a page
is where the dashboard shows it.
"""


def metrics_page() -> str:
    """The registry as two tables: what is measured, and who fills it."""
    lines = [
        *_METRICS_HEAD.splitlines(),
        *(_metric_row(metric) for metric in METRICS),
        *_COVERAGE_HEAD.splitlines(),
        "",
        "| metric | " + " | ".join(engine.value for engine in Engine) + " | view | page |",
        "|---|" + "---|" * (len(Engine) + 2),
        *(_coverage_row(row) for row in COVERAGE),
    ]
    return "\n".join(lines) + "\n"


def _metric_row(metric: Metric) -> str:
    attributes = ", ".join(f"`{name}`" for name in metric.attributes) or "–"
    encoding = ENCODINGS[metric.encoding] + (", snapshot" if metric.snapshot else "")
    return (
        f"| `{metric.name}` | {metric.kind.value.replace('_', ' ')}, `{metric.unit}` | {attributes} "
        f"| {encoding} | {metric.description} |"
    )


def _coverage_row(row: Coverage) -> str:
    cells = " | ".join(_cell(row.cells[engine]) for engine in Engine)
    views = ", ".join(f"`{view}`" for view in row.views)
    pages = ", ".join(page.replace("_", " ").capitalize() for page in row.pages)
    return f"| `{row.metric.name}` | {cells} | {views} | {pages} |"


def _cell(cell: Cell) -> str:
    return f"{cell.fill.value}: {cell.note}" if cell.note else cell.fill.value


def settings_page() -> str:
    """Every setting with its default."""
    lines = [
        "# Settings",
        "",
        "Generated from `schemas/settings.py`. Each is read from the environment; a command-line option of",
        "the same name wins. An unknown `MOESCOPE_*` name is an error (in an engine: a warning). Where OTLP",
        "goes is set by the standard `OTEL_EXPORTER_OTLP_*`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`",
        "and `OTEL_SDK_DISABLED` variables.",
        "",
        "| variable | default | what it does |",
        "|---|---|---|",
        *(f"| `{row.env}` | {_default(row.default)} | {row.help} |" for row in setting_rows()),
    ]
    return "\n".join(lines) + "\n"


def _default(value: object) -> str:
    if isinstance(value, bool):
        return "`1`" if value else "`0`"
    if isinstance(value, float):
        return f"`{value:g}`" if value < 1e5 else f"`{value:.0f}`"
    return f"`{value}`" if value != "" else "empty"


def tables_page() -> str:
    """Tables and views with their columns, from the migrations."""
    lines = [
        "# Tables and views",
        "",
        "Generated from `schemas/migrations/`. People query the views; the tables may change. Times are UTC.",
    ]
    for title, kind in (("Views", "view"), ("Tables", "table")):
        lines += ["", f"## {title}"]
        for migration in list_migrations():
            if migration.name.endswith(f"_{kind}"):
                lines += _table(migration.text, migration.name.removesuffix(f"_{kind}"))
    return "\n".join(lines) + "\n"


def _table(text: str, name: str) -> Iterator[str]:
    sentence = " ".join(
        line.removeprefix("--").strip() for line in text.splitlines() if line.startswith("--")
    )
    yield from ("", f"### `{name}`", "", sentence, "", "| column | type | what it is |", "|---|---|---|")
    for column, kind, comment in re.findall(
        r"^ {4}(\w+) ((?:Map|Array|LowCardinality|Nullable|AggregateFunction|DateTime64)\(.*?\)|\w+)"
        r"(?: DEFAULT '\w+')?"
        r"(?: CODEC\(.*?\))?(?: COMMENT '([^']*)')?,?$",
        text,
        flags=re.MULTILINE,
    ):
        yield f"| `{column}` | `{kind}` | {comment} |"


def cli_page() -> str:
    """Every command with its options, from the command line's own declarations."""
    lines = [
        "# Command line",
        "",
        "Generated from `moescope/cli*.py`. Data goes to stdout, progress and logs to stderr. Exit code 0:",
        "fine; 1: a finding that fails the check, or a fault outside; 2: wrong use.",
        *_command("moescope", get_command(app)),
    ]
    return "\n".join(lines) + "\n"


def _command(name: str, command: Any) -> Iterator[str]:
    children = getattr(command, "commands", {})
    if not children:
        yield from (
            "",
            f"## `{name}`",
            "",
            command.help or "",
            "",
            "| option | default | what it does |",
            "|---|---|---|",
        )
        for option in command.params:
            if option.name != "help":
                yield _option_row(option)
    for child_name, child in children.items():
        yield from _command(f"{name} {child_name}", child)


def _option_row(option: Any) -> str:
    shown = option.show_default if isinstance(option.show_default, str) else option.default
    default = "" if shown is None or shown is False else f"`{shown}`"
    return f"| `{option.opts[0]}` | {default} | {option.help} |"


PAGES: dict[str, Callable[[], str]] = {
    "metrics.md": metrics_page,
    "settings.md": settings_page,
    "tables.md": tables_page,
    "cli.md": cli_page,
    "json.md": json_page,
}


def main() -> int:
    """Write the pages, or say which of them lag behind."""
    is_check = "--check" in sys.argv
    lagging = []
    for name, make in PAGES.items():
        path, text = FOLDER / name, make()
        if is_check:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                lagging.append(name)
        else:
            path.write_text(text, encoding="utf-8")
    if lagging:
        print(f"docs lag behind the code: {', '.join(lagging)}. Run: make docs", file=sys.stderr)
    return int(bool(lagging))


if __name__ == "__main__":
    sys.exit(main())
