"""``moescope alerts``: SQL alert rules, for what Prometheus must not hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from moescope.cli_arguments import Json, missing_extra
from moescope.schemas.settings import load_settings

alerts = typer.Typer(
    name="alerts", help="SQL alert rules: check, test, replay and run them.", no_args_is_help=True
)

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE…", help="Rule files or folders; MOESCOPE_ALERT_RULES, or those shipped, if none."
    ),
]


@alerts.command()
def check(
    files: Files = None,
    dsn: Annotated[
        str | None, typer.Option(help="Run the SQL there; in a migrated, empty store if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Read rules strictly, run each one's SQL without rows, and compare its columns with its texts."""
    try:
        from moescope.alerting.check import check_rules
        from moescope.alerting.rule_file import find_rule_files
    except ModuleNotFoundError as error:
        raise missing_extra(error, "moescope alerts", "server") from None
    settings = load_settings()
    report = check_rules(
        find_rule_files([str(file) for file in files or []] or settings.alert_rules), settings, dsn
    )
    print(json.dumps(report.to_dict(), indent=2) if as_json else report.to_text())
    raise typer.Exit(int(report.has_problem))
