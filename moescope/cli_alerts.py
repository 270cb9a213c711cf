"""``moescope alerts``: SQL alert rules, for what Prometheus must not hold."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from moescope.cli_arguments import Dsn, Json, missing_extra, parse_window
from moescope.cli_progress import WindowProgress
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


@alerts.command("test")
def run_tests(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE…",
            help="Files of tests, or with --replay files of rules; those that moescope ships, if none.",
        ),
    ] = None,
    replay: Annotated[
        float | None,
        typer.Option(
            parser=parse_window, metavar="TIME", help="Go over so much stored history: what would have fired?"
        ),
    ] = None,
    step: Annotated[
        float | None,
        typer.Option(
            parser=parse_window,
            metavar="TIME",
            help="Between evaluations of a replay; as in the rules if not given.",
        ),
    ] = None,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Run tests of rules over rows or simulated windows, or replay rules over stored history."""
    try:
        from moescope.alerting import replay as replaying
        from moescope.alerting.rule_file import find_rule_files, find_test_files, read_rule_files
        from moescope.alerting.unit_test import run_test_files
        from moescope.analysis.store import open_store
    except ModuleNotFoundError as error:
        raise missing_extra(error, "moescope alerts", "server") from None
    names = [str(file) for file in files or []]
    report: Any
    with WindowProgress("") as progress:
        if replay is None:
            report = run_test_files(find_test_files(names), progress.show)
        else:
            settings = load_settings(dsn=dsn)
            groups = read_rule_files(find_rule_files(names or settings.alert_rules))
            with contextlib.closing(open_store(settings.dsn)) as store:
                end = time.time()
                report = replaying.replay(
                    groups, settings, store, (end - replay, end), progress=progress.show, step=step
                )
    print(json.dumps(report.to_dict(), indent=2) if as_json else report.to_text())
    raise typer.Exit(int(report.has_problem))


@alerts.command()
def run(
    files: Files = None,
    dsn: Dsn = None,
    alertmanager_url: Annotated[
        str | None, typer.Option(help="Alertmanagers to tell, by comma: http://host:9093.")
    ] = None,
    alert_webhook_url: Annotated[
        str | None, typer.Option("--webhook-url", help="Post each change there.")
    ] = None,
    alerts_port: Annotated[int | None, typer.Option(help="State, history, /metrics and health.")] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; a token is needed off loopback.")
    ] = None,
    alert_state_file: Annotated[
        str | None, typer.Option("--state-file", help="What is pending and firing is kept there.")
    ] = None,
    token_file: Annotated[
        str | None, typer.Option(help="File with the token that clients must send.")
    ] = None,
) -> None:
    """Evaluate rules until Ctrl-C, and tell Alertmanager or a webhook."""
    try:
        from moescope.alerting.run import run_alerts
    except ModuleNotFoundError as error:
        raise missing_extra(error, "moescope alerts", "server") from None
    run_alerts(
        load_settings(
            dsn=dsn,
            alert_rules=",".join(map(str, files)) if files else None,
            alertmanager_url=alertmanager_url,
            alert_webhook_url=alert_webhook_url,
            alerts_port=alerts_port,
            host=host,
            alert_state_file=alert_state_file,
            token_file=token_file,
        )
    )
